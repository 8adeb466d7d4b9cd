# SPDX-License-Identifier: GPL-2.0-or-later
"""A sweep's page: every cell with its medians over the seeds, and a chart of each figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from softroce_lab import units
from softroce_lab.report import listing, sweeps
from softroce_lab.report.page import charts, html
from softroce_lab.report.page.charts import Chart
from softroce_lab.report.recorded import Recorded
from softroce_lab.statistics import median_interval, spread_name

_FIGURES: dict[str, tuple[str, Callable[[float], str], float, str]] = {
    "fct_p99_ns": ("p99 completion", units.format_duration, 1e3, "us"),
    "makespan_ns": ("makespan", units.format_duration, 1e3, "us"),
    "goodput_bps": ("goodput", units.format_rate, 1e9, "Gbit/s"),
    "retransmitted": ("retransmitted", lambda count: f"{count:,.0f}", 1, "packets"),
}
_MOST_ROWS = 500


def parts(recorded: Recorded) -> Iterator[tuple[str, list[Chart]]]:
    """Sections, with their charts. UserError without a table."""
    rows = sweeps.rows(recorded)
    axes = sweeps.axes(recorded)
    known = listing.facts_to_share(recorded)
    yield html.section("run", "What was run", html.table("The sweep", ("what", "value"), known)), []
    yield _verdicts(rows), []
    cells = sweeps.cells(rows, axes)
    made = [_chart(cells, figure) for figure in _FIGURES]
    places = [f"@{chart.name}@" for chart in made if chart]
    yield html.section("cells", "Figures by cell", *places), [chart for chart in made if chart]
    yield html.section("rows", "All cells", _table(cells, axes)), []


def _verdicts(rows: Sequence[Mapping[str, Any]]) -> str:
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        of = counts.setdefault(row["transport"], {})
        of[row["verdict"]] = of.get(row["verdict"], 0) + 1
    words = ("passed", "failed", "error")
    lines = [(name, *(of.get(word, 0) for word in words)) for name, of in counts.items()]
    bad = [
        f"run {row['run']}, {row['transport']}, seed {row['seed']}: {row['reasons'][0]}"
        for row in rows
        if row["verdict"] != "passed" and row["reasons"]
    ]
    table = html.table("Runs by verdict", ("transport", *words), lines)
    return html.section("verdicts", "Verdicts", table, html.items(bad[:50]))


def _chart(cells: sweeps.Cells, figure: str) -> Chart | None:
    title, form, scale, unit = _FIGURES[figure]
    names = list(cells)
    series, lines = {}, []
    for transport in dict.fromkeys(name for of in cells.values() for name in of):
        found = [
            (at, float(np.median(values)))
            for at, cell in enumerate(names)
            if (values := cells[cell].get(transport, {}).get(figure))
        ]
        if found:
            x, y = zip(*found, strict=True)
            series[transport] = np.array(x), np.array(y) / scale
    if not series:
        return None
    for cell in names:
        of = [cells[cell].get(name, {}).get(figure) or [] for name in series]
        lines.append((cell, *(_shown(each, form) for each in of)))
    table = f"{title}: median [{_spread(cells)}] of the seeds"
    data = html.table(table, ("cell", *series), lines)
    caption = f"Median of the seeds. Cells from left to right: {'; '.join(names[:30])}."
    labels = ("cell", f"{title}, {unit}")
    return charts.lines(figure, title.capitalize(), caption, labels, series, data)


def _spread(cells: sweeps.Cells) -> str:
    """What stands behind a median."""
    transports = (of for cell in cells.values() for of in cell.values())
    return spread_name(max(map(len, of.values())) for of in transports if of)


def _shown(values: Sequence[float], form: Callable[[float], str]) -> str:
    if not values:
        return "-"
    found = median_interval(values)
    if len(values) == 1:
        return form(found.median)
    return f"{form(found.median)} [{form(found.low)}, {form(found.high)}]"


def _table(cells: sweeps.Cells, axes: Sequence[str]) -> str:
    head = (
        ", ".join(axes) or "cell",
        "transport",
        "seeds",
        *(each[0] for each in _FIGURES.values()),
    )
    rows = [
        (cell, name, max(map(len, of.values()), default=0),
         *(_shown(of.get(key) or [], each[1]) for key, each in _FIGURES.items()))
        for cell, transports in cells.items()
        for name, of in transports.items()
    ]  # fmt: skip
    left = len(rows) - _MOST_ROWS
    more = html.paragraph(f"{left:,} more are in runs.parquet.") if left > 0 else ""
    return html.table(f"Median [{_spread(cells)}] of the seeds", head, rows[:_MOST_ROWS]) + more
