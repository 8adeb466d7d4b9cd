# SPDX-License-Identifier: GPL-2.0-or-later
"""The columns of a sweep's table, and what is a row of it. docs/sweeps.md describes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeGuard

from softroce_lab.experiment.over_oracle import EXCESS, RATIOS, UNDEFINED

Row: TypeAlias = Mapping[str, Any]

ERROR = "error"
"""The verdict of a run that there is no result of; the reasons say why."""

NUMBER = "run"
"""The first column: a run's number in the sweep."""

CLASSES = "list<class>"
"""A type: slowdowns by size class, each a row of `CLASS`."""
CLASS = {"size_class": "string", "n": "int64", "p50": "float64", "p99": "float64"}

# The columns behind those of the axes, and their types as Arrow calls them.
FIGURES = {
    "transport": "string",
    "protocol": "string",
    "congestion_control": "string",
    "seed": "uint64",
    "clock": "string",
    "verdict": "string",
    "reasons": "list<string>",
    "notes": "list<string>",
    "verified": "bool",
    **dict.fromkeys(
        ("messages", "delivered", "measured", "bytes", "makespan_ns", "goodput_bps",
         "operation_p50_ns",
         "operation_p99_ns", "algbw_bps", "busbw_bps", "steps", "step_p50_ns", "step_p99_ns",
         "fct_p50_ns", "fct_p99_ns", "fct_p999_ns",
         "packets_sent", "retransmitted", "spurious_retransmissions", "control_packets",
         "control_bytes",
         "repairs", "unrepaired", "repair_p50_ns", "repair_p99_ns", "base_rtt_ns",
         "contexts_missed", "injected_drops", "queue_drops", "marked", "trimmed", "emulator_drops",
         "end_ns"),
        "int64",
    ),
    **dict.fromkeys(
        ("step_waiting", "offered_load", "measured_load", "slowdown_p50", "slowdown_p99"),
        "float64",
    ),
    **dict.fromkeys((*RATIOS, EXCESS), "float64"),
    "slowdown": CLASSES,
    "held_back": "list<string>",
    "fidelity": "string",
    "wall_s": "float64",
    "cpu_s": "float64",
    "version": "string",
    "commit": "string",
    "run_dir": "string",
    "key": "string",
}  # fmt: skip

_VERDICTS = ("passed", "failed", ERROR)
_NEVER_NULL = ("transport", "seed", "verdict", "reasons", "key")  # even without a result
_ALWAYS = FIGURES.keys() - {"run_dir", *RATIOS, EXCESS}  # with a result
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which no column holds


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
    for name, kind in FIGURES.items():
        value = cell(data, name)
        if value is not None and not fits(kind, value):
            return False
    verdict = data["verdict"]
    whole = verdict == ERROR or data.keys() >= _ALWAYS
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
