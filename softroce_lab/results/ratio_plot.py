# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results plot --kind ratios`: p99 completion of a transport over the others, by cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softroce_lab.errors import UserError
from softroce_lab.results import comparison, ratios, sweeps
from softroce_lab.results.plot_style import COLOURS, MARKERS, wrapped
from softroce_lab.results.recorded import Recorded

_ROW_INCHES = 0.36  # of a row of ratios
_LANES = 0.8  # of a row, where 1 is between rows: shared by the points of the transports


def draw(axes: Any, directories: Sequence[Recorded], only: Sequence[str]) -> None:
    """p99 completion of the first transport over that of each other, by cell.

    The numbers are those of `lab results compare --transport`. The values of a sweep's last axis
    are panels side by side, its other axes and the directories are rows.
    """
    places: dict[tuple[str, str], dict[str, ratios.Ratio]] = {}  # by row and panel, by transport
    key = "fct_p99_ns"
    compared = ""
    for recorded in directories:
        values = comparison.values(recorded, only)
        compared = compared or next(iter(values))[1]
        of = _rows_and_panels(recorded)
        for panel in dict.fromkeys(of[cell][1] for cell, _ in values):
            some = {each: runs for each, runs in values.items() if of[each[0]][1] == panel}
            pairs = ratios.over_others(some, compared)
            for row in ratios.rows(some, some, pairs, [key]):
                ratio = row.ratios[key]
                if ratio is None:
                    continue
                place = (
                    (f"mean of {recorded.manifest.get('name')}", panel)
                    if row.cell == ratios.ALL_CELLS
                    else of[row.cell]
                )
                places.setdefault(place, {})[row.compared.partition(" / ")[2]] = ratio
    if not places:
        raise UserError("there is nothing to draw: no two runs that passed have one seed")
    _paint(axes, places, compared)


def _rows_and_panels(recorded: Recorded) -> dict[str, tuple[str, str]]:
    """By cell: `hosts=64, loss=none` is in the row `hosts=64` and the panel `loss=none`."""
    name = str(recorded.manifest.get("name") or recorded.name)
    if not recorded.is_sweep:
        return {"all": (name, "")}
    axes = sweeps.axes(recorded)
    found = {}
    for row in sweeps.rows(recorded):
        *others, last = axes or [""]
        label = str(row.get(others[0])) if len(others) == 1 else sweeps.cell_of(row, others)
        panel = f"{last}={row.get(last)}" if last else ""
        found[sweeps.cell_of(row, axes)] = (label if others else name), panel
    return found


def _paint(
    axes: Any, places: dict[tuple[str, str], dict[str, ratios.Ratio]], compared: str
) -> None:
    from matplotlib import ticker

    rows = list(dict.fromkeys(row for row, _ in places))
    panels = list(dict.fromkeys(panel for _, panel in places))
    others = list(dict.fromkeys(name for of in places.values() for name in of))
    figure = axes.figure
    axes.remove()
    made = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for axis, panel in zip(made, panels, strict=True):
        for at, name in enumerate(others):
            lane = _LANES * ((at + 0.5) / len(others) - 0.5)
            known = [
                (place + lane, ratio)
                for place, row in enumerate(rows)
                if (ratio := places.get((row, panel), {}).get(name)) is not None
            ]
            if known:
                _points(axis, known, at, name)
        axis.axvline(1, color="#444444", lw=0.8)
        axis.set(title=panel, xscale="log")
        for place in range(1, len(rows)):
            axis.axhline(place - 0.5, color="#bbbbbb", lw=0.5)
        axis.grid(visible=False, axis="y")
        axis.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axis.minorticks_off()
    low, high = made[0].get_xlim()
    made[0].xaxis.set_major_locator(
        ticker.LogLocator(subs=(1, 2, 5) if high < 500 * low else (1,))
    )  # of all panels: they share the axis
    made[0].set_yticks(range(len(rows)), [wrapped(row, 22, 3) for row in rows])
    made[0].set_ylim(len(rows) - 0.5, -0.5)
    pairs = [ratio.pairs for of in places.values() for ratio in of.values()]
    few, most = min(pairs), max(pairs)
    seeds = f"{most}" if few == most else f"{few} to {most}"
    bars = f"geometric means and 95 % intervals of {seeds} seeds" if most > 1 else "of one seed"
    figure.supxlabel(
        f"p99 completion time: {compared} over the other; below 1 {compared} is faster\n{bars}",
        fontsize=8,
    )
    figure.set_size_inches(1.2 + 2.9 * len(panels), _ROW_INCHES * len(rows) + 1.4)
    handles, names = made[0].get_legend_handles_labels()
    figure.legend(handles, names, ncols=5, loc="outside upper center")


def _points(axis: Any, known: Sequence[tuple[float, ratios.Ratio]], at: int, name: str) -> None:
    """The ratios of one transport at their heights, with intervals."""
    y, found = zip(*known, strict=True)
    x = [each.mean for each in found]
    low = [each.mean - (each.mean if each.low is None else each.low) for each in found]
    high = [(each.mean if each.high is None else each.high) - each.mean for each in found]
    colour = COLOURS[at % len(COLOURS)]
    turn = at // len(COLOURS)  # another marker, and an open one, where colours repeat
    axis.errorbar(
        x, y, xerr=[low, high], label=name, linestyle="none", elinewidth=0.9, ms=3,
        color=colour, mfc="white" if turn % 2 else colour,
        marker=MARKERS[(at + turn) % len(MARKERS)],
    )  # fmt: skip
