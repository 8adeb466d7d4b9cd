# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of a sweep's table, and its cells: what differs by anything but transport and seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from softroce_lab.errors import UserError
from softroce_lab.experiment import figure_table
from softroce_lab.experiment.figure_table import SIZE_CLASSES
from softroce_lab.results.recorded import Recorded, broken_table

TABLE = "runs.parquet"

Cells: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]
"""By the values of the axes and by transport: of each figure its values, one a seed."""


def rows(recorded: Recorded) -> list[dict[str, Any]]:
    """Of runs.parquet, in the order of the sweep. UserError if it is missing or empty."""
    import pyarrow as pa  # late: it takes a third of a second
    import pyarrow.parquet as pq

    path = recorded.path / TABLE
    try:
        found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    except FileNotFoundError:
        hint = "the sweep was killed; the same lab run command goes on, and writes it"
        raise UserError(f"{path} is missing", hint=hint) from None
    except (OSError, pa.ArrowException) as error:
        raise broken_table(path, error) from error
    if not found:
        raise UserError(f"{path} has no row: no run is over", hint=recorded.warning)
    return found


def axes(recorded: Recorded) -> list[str]:
    """What was varied."""
    return list(recorded.manifest.get("axes") or {})


def cell_of(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """`loss=1%, depth=4`; `all` without axes."""
    return ", ".join(f"{name}={row.get(name)}" for name in names) or "all"


def short_labels(found: Sequence[Mapping[str, Any]], names: Sequence[str]) -> tuple[str, list[str]]:
    """What tells the cells apart, in few words: the names of these axes, and of each cell values.

    Left out: axes with one value, and of a name all but the parts that it needs to be another's.
    """
    of_cells = {cell_of(row, names): row for row in reversed(found)}
    rows = [of_cells[cell] for cell in dict.fromkeys(cell_of(row, names) for row in found)]
    varied = [name for name in names if len({str(row.get(name)) for row in rows}) > 1] or names
    title = ", ".join(_shortened(name, varied) for name in varied)
    return title, [", ".join(str(row.get(name)) for name in varied) or "all" for row in rows]


def _shortened(name: str, names: Sequence[str]) -> str:
    """Its last parts: as few as no other name ends with."""
    parts = name.split(".")
    tails = (".".join(parts[at:]) for at in range(len(parts) - 1, -1, -1))
    others = [f".{each}" for each in names if each != name]
    return next((tail for tail in tails if not any(o.endswith(f".{tail}") for o in others)), name)


def cells(found: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Cells:
    """Figures of the rows that passed, by cell and transport; in the order of the rows."""
    of: dict[str, dict[str, dict[str, list[float]]]] = {}
    known = figure_table.all_figures(found)
    for row in found:
        figures = of.setdefault(cell_of(row, names), {}).setdefault(row["transport"], {})
        if row["verdict"] != "passed":
            continue
        for name, figure in known.items():
            if figure.unit.is_number and row.get(name) is not None:
                figures.setdefault(name, []).append(row[name])
    return of


def slowdowns(
    found: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> tuple[list[str], dict[str, dict[tuple[str, str], list[float]]]]:
    """The cells; and by class of sizes, by cell and transport, p99 slowdowns, one a seed.

    Of the rows that passed; without the classes of which no flow was delivered.
    """
    order = list(dict.fromkeys(cell_of(row, names) for row in found))
    of: dict[str, dict[tuple[str, str], list[float]]] = {size: {} for size in SIZE_CLASSES}
    for row in found:
        for size in SIZE_CLASSES if row["verdict"] == "passed" else ():
            for one in figure_table.flows([row], size):
                key = cell_of(row, names), row["transport"]
                of[size].setdefault(key, []).append(one["p99"])
    return order, {size: values for size, values in of.items() if values}
