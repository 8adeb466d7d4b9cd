# SPDX-License-Identifier: GPL-2.0-or-later
"""SDR-RDMA's crossover map as a figure: who is fastest, simulated and by both models side by side.

A square is a size of messages and a loss of chunks, and names the fastest scheme and by how much
the better code is ahead of the better selective repeat (below 1: behind).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from softroce_lab import units
from softroce_lab.bench.crossover import tables
from softroce_lab.bench.crossover.cells import Cell, row
from softroce_lab.bench.crossover.points import Point, fixed
from softroce_lab.errors import UserError
from softroce_lab.report import plots

CODES, REPEATS = ("mds", "xor"), ("sr_rto", "sr_nack")
EQUAL = 0.01  # of a time: by less, neither is ahead
COLUMNS: Mapping[str, Callable[[Cell], float]] = {
    "simulated": lambda cell: cell.mean_ns,
    "model of what was built": lambda cell: cell.model_ns,
    "the paper's model": lambda cell: cell.paper_ns,
}
_COLOURS = {
    "=": "#ffffff", "sr": "#e8e8e8", "ec": "#c7e9c0",
    "sr_rto": "#d9d9d9", "sr_nack": "#b8b8b8", "mds": "#9ecae1", "xor": "#fdd0a2",
}  # fmt: skip
_NAMES = {
    "=": "=",
    "sr": "SR",
    "ec": "EC",
    "sr_rto": "RTO",
    "sr_nack": "NACK",
    "mds": "MDS",
    "xor": "XOR",
}
_SQUARE, _AROUND = (0.34, 0.24), (0.9, 0.75)  # inches of a square, and around a panel


def verdict(here: Mapping[str, Cell], time_ns: Callable[[Cell], float]) -> tuple[str, float] | None:
    """The fastest scheme of a point, and by how much codes are ahead of selective repeat.

    "=" if neither family is ahead; "sr" or "ec" if both schemes of the family are as fast. The
    ratio is the least time of selective repeat over that of a code. None without both.
    """
    of = {name: time_ns(here[name]) for name in (*REPEATS, *CODES) if name in here}
    repeats, codes = ([of[n] for n in names if n in of] for names in (REPEATS, CODES))
    if not repeats or not codes:
        return None
    ratio = min(repeats) / min(codes)
    if abs(ratio - 1) < EQUAL:
        return "=", ratio
    family, times = ("ec", codes) if ratio > 1 else ("sr", repeats)
    if len(times) == 2 and max(times) < min(times) * (1 + EQUAL):
        return family, ratio
    return min(of, key=lambda name: of[name]), ratio


def save(cells: Sequence[Cell], path: Path, command: str) -> None:
    """Draw the map into a file. UserError where nothing can be compared; EnvironmentLackError."""
    points = {where: here for where, here in tables.by_point(cells).items() if fixed(here)}
    if not any(verdict(here, COLUMNS["simulated"]) for here in points.values()):
        raise UserError("there is no map: no point has selective repeat and a code")
    kms, sizes, losses = (sorted({where[axis] for where in points}) for axis in range(3))
    inches = (
        len(COLUMNS) * (_SQUARE[0] * len(losses) + _AROUND[0] / 2) + _AROUND[0],
        len(kms) * (_SQUARE[1] * len(sizes) + _AROUND[1]) + _AROUND[1] / 2,
    )

    def paint(_: Any, figure: Any) -> None:
        panels = figure.subplots(len(kms), len(COLUMNS), squeeze=False, sharex=True, sharey=True)
        for panel_row, km in zip(panels, kms, strict=True):
            for axes, (title, time_ns) in zip(panel_row, COLUMNS.items(), strict=True):
                _panel(axes, points, (km, sizes, losses), time_ns)
                axes.set_title(f"{km:g} km, {title}", fontsize=6)
            panel_row[0].set_ylabel("message", fontsize=6)
        for axes in panels[-1]:
            axes.set_xlabel("loss of chunks", fontsize=6)
        figure.suptitle(
            "fastest scheme, and the time of selective repeat over that of the code; "
            f"=: within {EQUAL:.0%}; SR, EC: both of them", fontsize=7,
        )  # fmt: skip

    digest = hashlib.sha256(json.dumps([row(each) for each in cells]).encode()).hexdigest()
    text = f"{command}; sha256 of the cells {digest}"
    plots.write(path, paint, plots.metadata("crossover map", text, plots.suffix_of(path)), inches)


def _panel(
    axes: Any,
    points: Mapping[Point, Mapping[str, Cell]],
    where: tuple[Any, Sequence[Any], Sequence[Any]],
    time_ns: Callable[[Cell], float],
) -> None:
    """The squares of one distance."""
    km, sizes, losses = where
    for y, size in enumerate(sizes):
        for x, loss in enumerate(losses):
            found = verdict(points.get((km, size, loss), {}), time_ns)
            if found is None:
                continue
            name, ratio = found
            axes.bar(x, 1, 1, y - 0.5, color=_COLOURS[name], edgecolor="#808080", linewidth=0.3)
            axes.text(
                x, y, _NAMES[name] if name == "=" else f"{_NAMES[name]} {ratio:.2f}",
                ha="center", va="center", fontsize=4,
            )  # fmt: skip
    axes.grid(visible=False)
    axes.set(xlim=(-0.5, len(losses) - 0.5), ylim=(-0.5, len(sizes) - 0.5))
    axes.set_xticks(range(len(losses)), [f"{loss:g}" for loss in losses], fontsize=5, rotation=90)
    axes.set_yticks(range(len(sizes)), [units.format_bytes(size) for size in sizes], fontsize=5)
