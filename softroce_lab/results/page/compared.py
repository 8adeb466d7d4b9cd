# SPDX-License-Identifier: GPL-2.0-or-later
"""The verdicts of `lab results compare --baseline`: each transport against the first one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from softroce_lab import units
from softroce_lab.experiment.figure_table import figure_of
from softroce_lab.results import comparison, sign_tests
from softroce_lab.results.comparison import Comparison
from softroce_lab.results.page import html
from softroce_lab.results.recorded import Recorded
from softroce_lab.statistics import ALPHA

NAME = "compared"


def section(recorded: Recorded) -> str:
    """A table for each other transport; "" where there is none, or nothing that can be compared."""
    baseline = next((transport for _, transport in comparison.values(recorded)), "")
    others = [transport for _, transport in comparison.values(recorded) if transport != baseline]
    if not others:
        return ""
    found = comparison.with_baseline(recorded, baseline)
    tables = [
        html.table(f"{name}, compared with {baseline}", *_table(each, baseline, name))
        for name, each in found.items()
        if each.lines
    ]
    if not tables:
        return ""
    note = (
        "By a sign test on the seeds, corrected for all claims of one table. A ratio above 1 says "
        "that the transport has more than the first one."
    )
    fewest = sign_tests.fewest_pairs(ALPHA)
    lines = [line for each in found.values() for line in each.lines]
    if any(line.pairs < fewest for line in lines):
        note += f" Fewer than {fewest} seeds cannot show a difference."
    title = f"Transports compared with {baseline}"
    return html.section(NAME, title, html.paragraph(note), *tables)


def _table(
    found: Comparison, baseline: str, name: str
) -> tuple[Sequence[str], Iterator[Sequence[object]]]:
    """Its head and rows: of one cell each figure, of several how many cells differ."""
    if len({line.cell for line in found.lines}) > 1:
        return ("figure", "better", "worse", "no difference shown"), _counts(found)
    return ("figure", baseline, name, "ratio", "seeds", "verdict"), (
        (figure_of(line.figure).name, line.shown(line.first), line.shown(line.second),
         str(line.ratio), line.pairs, line.verdict)
        for line in found.lines
    )  # fmt: skip


def _counts(found: Comparison) -> Iterator[Sequence[object]]:
    for figure in dict.fromkeys(line.figure for line in found.lines):
        counts: Counter[str] = Counter(
            line.verdict for line in found.lines if line.figure == figure
        )
        verdicts = ("better", "worse", "no difference shown")
        cells = (units.format_count(counts[each], "cell") for each in verdicts)
        yield figure_of(figure).name, *cells
