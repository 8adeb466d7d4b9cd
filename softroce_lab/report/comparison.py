# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab compare`: runs or sweeps side by side, with intervals over paired seeds, and verdicts.

A figure of one transport, cell and seed in both directories is a pair; its difference is the
logarithm of the ratio. The interval of the median ratio is that of `statistics.median_interval`.
Better or worse is claimed by a sign test on the pairs, with Holm's correction over all claims of
the comparison, so that all claims together are wrong in at most 5 % of comparisons. It assumes
that seeds are independent, and nothing else.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.experiment.hosts.program_words import UNSEEN
from softroce_lab.report import sweeps
from softroce_lab.report.recorded import Recorded, programs_of
from softroce_lab.statistics import ALPHA, Interval, holm, median_interval

Verdict: TypeAlias = Literal["better", "worse", "no difference shown"]

FIGURES = {
    "makespan_ns": -1, "fct_p50_ns": -1, "fct_p99_ns": -1, "fct_p999_ns": -1, "step_p99_ns": -1,
    "slowdown_p99": -1, "repair_p99_ns": -1, "goodput_bps": 1, "algbw_bps": 1, "busbw_bps": 1,
    "retransmitted": -1, "control_packets": -1,
}  # fmt: skip
"""What is compared, and whether more of it is better (1) or worse (-1)."""

Key: TypeAlias = tuple[str, str]  # cell and transport
Values: TypeAlias = Mapping[Key, Mapping[int, Mapping[str, float]]]  # by key and seed


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A figure in both."""

    cell: str
    transport: str
    figure: str
    first: float  # medians of the paired seeds
    second: float
    ratio: Interval  # of the pairs, second over first
    pairs: int
    p: float  # of the sign test, adjusted by Holm's procedure
    verdict: Verdict

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return dataclasses.asdict(self)

    def shown(self, value: float) -> str:
        """A value of the figure, for people."""
        if self.figure.endswith("_ns"):
            return units.format_duration(value)
        return units.format_rate(value) if self.figure.endswith("_bps") else f"{value:,.4g}"


def values(recorded: Recorded) -> Values:
    """The figures of the runs that passed. UserError without any."""
    axes = sweeps.axes(recorded) if recorded.is_sweep else []
    rows = sweeps.rows(recorded) if recorded.is_sweep else recorded.runs
    found: dict[Key, dict[int, dict[str, float]]] = {}
    for row in rows:
        if row["verdict"] != "passed":
            continue
        key = sweeps.cell_of(row, axes), row["transport"]
        figures = {name: row[name] for name in FIGURES if row.get(name) is not None}
        found.setdefault(key, {})[row["seed"]] = figures
    if not found:
        raise UserError(f"{recorded.path} has no run that passed")
    return found


def compared(first: Recorded, second: Recorded) -> list[Line]:
    """All figures that both have. UserError if they have no run in common.

    Directories with one transport each are compared whatever it is called.
    """
    one, other = values(first), values(second)
    pairs = [(key, key) for key in one if key in other]
    if not pairs:
        pairs = list(_of_one_transport(one, other))
    found = [
        line for ours, theirs in pairs for line in _lines(one[ours], other[theirs], ours, theirs)
    ]
    if not found:
        if any({*one[ours]} & {*other[theirs]} for ours, theirs in pairs):
            programs = any(map(programs_of, first.runs)) if not first.is_sweep else False
            hint = f"{UNSEEN}: lab show has what they printed" if programs else ""
            what = f"{first.path} and {second.path} have no figure in common that can be compared"
            raise UserError(what, hint=hint or None)
        hint = "the same transport and seed in both, or one transport in each"
        raise UserError(f"{first.path} and {second.path} have no run in common", hint=hint)
    adjusted = holm([line.p for line in found])
    return [
        dataclasses.replace(line, p=p, verdict=_verdict(line, p))
        for line, p in zip(found, adjusted, strict=True)
    ]


def _of_one_transport(one: Values, other: Values) -> Iterator[tuple[Key, Key]]:
    if len({key[1] for key in one}) == len({key[1] for key in other}) == 1:
        theirs = {key[0]: key for key in other}
        yield from ((key, theirs[key[0]]) for key in one if key[0] in theirs)


def _lines(
    one: Mapping[int, Mapping[str, float]], other: Mapping[int, Mapping[str, float]],
    ours: Key, theirs: Key,
) -> Iterator[Line]:  # fmt: skip
    name = ours[1] if ours == theirs else f"{ours[1]}, {theirs[1]}"
    for figure in FIGURES:
        seeds = [
            seed for seed in one
            if seed in other and one[seed].get(figure) and other[seed].get(figure)
        ]  # fmt: skip
        if not seeds:
            continue
        before = [one[seed][figure] for seed in seeds]
        after = [other[seed][figure] for seed in seeds]
        logs = [math.log(b / a) for a, b in zip(before, after, strict=True)]
        found = median_interval(logs)
        ratio = Interval(*(math.exp(each) for each in (found.median, found.low, found.high)))
        first, second = (median_interval(each).median for each in (before, after))
        yield Line(ours[0], name, figure, first, second, ratio, len(seeds), sign_test(logs),
                   "no difference shown")  # fmt: skip


def sign_test(differences: Sequence[float]) -> float:
    """Two-sided p of the hypothesis that their median is 0; equal pairs do not count."""
    above = sum(each > 0 for each in differences)
    count = above + sum(each < 0 for each in differences)
    if count == 0:
        return 1.0
    most = max(above, count - above)
    tail = sum(math.comb(count, each) for each in range(most, count + 1)) / (1 << count)
    return min(1.0, 2 * tail)


def _verdict(line: Line, p: float) -> Verdict:
    if p > ALPHA or line.ratio.median == 1:
        return "no difference shown"
    return "better" if (line.ratio.median > 1) == (FIGURES[line.figure] > 0) else "worse"


def seeds_needed(claims: int) -> int:
    """The fewest pairs with which one of so many claims can be made."""
    return math.ceil(math.log2(2 * max(claims, 1) / ALPHA))
