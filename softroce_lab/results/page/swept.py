# SPDX-License-Identifier: GPL-2.0-or-later
"""A sweep's page: every cell with its medians over the seeds, and a chart of each figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from softroce_lab.experiment.figure_table import Figure, all_figures
from softroce_lab.experiment.workload_table import spread_text
from softroce_lab.results import listing, sweeps
from softroce_lab.results.page import charts, compared, html
from softroce_lab.results.page.charts import Chart
from softroce_lab.results.recorded import Recorded
from softroce_lab.statistics import median_interval, spread_name

_MOST_ROWS = 500


def parts(recorded: Recorded) -> Iterator[tuple[str, list[Chart]]]:
    """Sections, with their charts. UserError without a table."""
    rows = sweeps.rows(recorded)
    axes = sweeps.axes(recorded)
    known = listing.facts_to_share(recorded)
    yield html.section("run", "What was run", html.table("The sweep", ("what", "value"), known)), []
    yield _verdicts(rows), []
    yield compared.section(recorded), []
    cells = sweeps.cells(rows, axes)
    present = {key for of in cells.values() for known in of.values() for key in known}
    figures = [
        figure for key, figure in all_figures(rows).items()
        if key in present and (figure.better or figure.bound)
    ]  # fmt: skip
    made = [_chart(cells, figure) for figure in figures]
    places = [f"@{chart.name}@" for chart in made]
    yield html.section("cells", "Figures by cell", *places), made
    yield html.section("rows", "All cells", _table(cells, axes, figures)), []


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


def _chart(cells: sweeps.Cells, figure: Figure) -> Chart:
    names = list(cells)
    series = {}
    for transport in dict.fromkeys(name for of in cells.values() for name in of):
        found = [
            (at, float(np.median(values)))
            for at, cell in enumerate(names)
            if (values := cells[cell].get(transport, {}).get(figure.key))
        ]
        if found:
            x, y = zip(*found, strict=True)
            series[transport] = np.array(x), np.array(y) / figure.unit.divisor
    lines = [(cell, *(_shown(cells[cell].get(name, {}), figure) for name in series))
             for cell in names]  # fmt: skip
    table = f"{figure.name}: median [{_spread(cells)}] of the seeds"
    data = html.table(table, ("cell", *series), lines)
    caption = f"Median of the seeds. Cells from left to right: {'; '.join(names[:30])}."
    labels = ("cell", ", ".join(filter(None, (figure.name, figure.unit.name))))
    title = figure.name[0].upper() + figure.name[1:]
    return charts.lines(figure.key, title, caption, labels, series, data)


def _spread(cells: sweeps.Cells) -> str:
    """What stands behind a median."""
    transports = (of for cell in cells.values() for of in cell.values())
    return spread_name(max(map(len, of.values())) for of in transports if of)


def _shown(values: Mapping[str, Sequence[float]], figure: Figure) -> str:
    found = values.get(figure.key)
    return spread_text(found, figure.unit.show, median_interval) if found else "-"


def _table(cells: sweeps.Cells, axes: Sequence[str], figures: Sequence[Figure]) -> str:
    head = (", ".join(axes) or "cell", "transport", "seeds", *(each.name for each in figures))
    rows = [
        (cell, name, max(map(len, of.values()), default=0), *(_shown(of, each) for each in figures))
        for cell, transports in cells.items()
        for name, of in transports.items()
    ]
    left = len(rows) - _MOST_ROWS
    more = html.paragraph(f"{left:,} more are in runs.parquet.") if left > 0 else ""
    return html.table(f"Median [{_spread(cells)}] of the seeds", head, rows[:_MOST_ROWS]) + more
