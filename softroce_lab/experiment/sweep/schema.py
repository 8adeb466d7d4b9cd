# SPDX-License-Identifier: GPL-2.0-or-later
"""The columns of a sweep's table, and what is a row of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeGuard

from softroce_lab.experiment.figure_table import CLASS, CLASSES, FIGURES, Row
from softroce_lab.experiment.over_oracle import EXCESS, UNDEFINED

ERROR = "error"
"""The verdict of a run that there is no result of; the reasons say why."""

NUMBER = "run"
"""The first column: a run's number in the sweep."""

_RUN = {
    "transport": "string",
    "protocol": "string",
    "congestion_control": "string",
    "seed": "uint64",
    "clock": "string",
    "verdict": "string",
    "reasons": "list<string>",
    "notes": "list<string>",
}
_COST = {
    "wall_s": "float64",
    "cpu_s": "float64",
    "version": "string",
    "commit": "string",
    "run_dir": "string",
    "key": "string",
}
_VERDICTS = ("passed", "failed", ERROR)
_NEVER_NULL = ("transport", "seed", "verdict", "reasons", "key")  # even without a result
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which no column holds


def columns() -> dict[str, str]:
    """The columns behind those of the axes, and their types as Arrow calls them."""
    return {**_RUN, **{key: figure.unit.column for key, figure in FIGURES.items()}, **_COST}


def in_unit(axis: str, kind: str) -> str:
    """The column of an axis whose values are quantities of this kind (`sweep_values`)."""
    return f"{axis} [{kind or 'share'}]"


def cell(row: Row, name: str) -> Any:
    """What a row has in this column."""
    value = row.get(name)
    if name == EXCESS and value == UNDEFINED:
        return None
    if name == "held_back" and isinstance(value, list):
        return [each.get("by") if isinstance(each, dict) else each for each in value]
    return value.get("verdict") if name == "fidelity" and isinstance(value, dict) else value


def is_row(data: object) -> TypeGuard[Row]:
    """Whether these are all the figures of a run, and each is of its column's type."""
    if not isinstance(data, dict) or any(data.get(name) is None for name in _NEVER_NULL):
        return False
    kinds = columns()
    for name, kind in kinds.items():
        value = cell(data, name)
        if value is not None and not fits(kind, value):
            return False
    verdict = data["verdict"]
    later = {key for key, figure in FIGURES.items() if figure.over_oracle}
    whole = verdict == ERROR or data.keys() >= kinds.keys() - {"run_dir", *later}
    return whole and verdict in _VERDICTS and (verdict == "passed" or bool(data["reasons"]))


def fits(kind: str, value: Any) -> bool:
    """Whether a column of this type holds a value."""
    return _FITS[kind](value)


def fits_int64(value: int) -> bool:
    """Whether a column of whole numbers holds it."""
    return -(1 << 63) <= value < 1 << 63


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and _SURROGATE.search(value) is None


def _are_classes(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_class, value))


def _is_class(value: Any) -> bool:
    if not isinstance(value, dict) or value.keys() != CLASS.keys():
        return False
    return all(
        value[name] is None if kind == "float64" and not value["n"] else fits(kind, value[name])
        for name, kind in CLASS.items()
    )


_FITS: dict[str, Callable[[Any], bool]] = {  # exact types: True is no number
    "string": _is_text,
    "list<string>": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "bool": lambda value: type(value) is bool,
    "int64": lambda value: type(value) is int and fits_int64(value),
    "uint64": lambda value: type(value) is int and 0 <= value < 1 << 64,
    "float64": lambda value: type(value) is float,
    CLASSES: _are_classes,
}
