# SPDX-License-Identifier: GPL-2.0-or-later
"""The readable table of a sweep: Markdown whose columns are in line, and the same in every place.

A section for each value of all axes but the last, which is a column beside the transport. Of times
and rates it shows the median of the seeds, of counts their sum. Quantities have fixed units and all
of their digits, so that two tables differ wherever two results do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from softroce_lab.experiment.workload_run import FCT
from softroce_lab.statistics import FOOTNOTE, marked, samples_needed
from softroce_lab.sweep.spec import Sweep, label
from softroce_lab.sweep.work import Row

_NOTHING = "-"


class _Column(NamedTuple):
    title: str
    cell: Callable[[Sequence[Row]], str]


def sections(sweep: Sweep, rows: Sequence[Row]) -> Iterator[str]:
    """Every section's text, in the order of the sweep; those without rows are left out."""
    names = [axis.name for axis in sweep.axes]
    outer, inner = names[:-1], names[-1:]

    def place(row: Row) -> tuple[str, ...]:
        return tuple(label(row[name]) for name in outer)

    for values, found in itertools.groupby(rows, place):
        lines = _table(inner, list(found))
        title = ", ".join(f"{name} {value}" for name, value in zip(outer, values, strict=True))
        yield "\n".join([f"## {title}", "", *lines] if title else lines) + "\n"


def document(sweep: Sweep, rows: Sequence[Row]) -> str:
    """A whole file."""
    made = f"Made by `lab sweep {sweep.name} --table FILE`; nothing in it is written by hand."
    said = " ".join([made, *samples(rows)])
    return "\n".join([f"# {sweep.name}\n", f"{sweep.about}\n", f"{said}\n", *sections(sweep, rows)])


def _table(inner: Sequence[str], rows: Sequence[Row]) -> list[str]:
    def place(row: Row) -> tuple[str, ...]:
        return (*(label(row[name]) for name in inner), row["transport"])

    groups = [(where, list(found)) for where, found in itertools.groupby(rows, place)]
    heads = [*inner, "transport", *(column.title for column in _COLUMNS)]
    cells = [[*where, *(column.cell(found) for column in _COLUMNS)] for where, found in groups]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    named = len(inner) + 2  # these are words, and begin where their column begins
    rule = ["-" * w if at < named else "-" * (w - 1) + ":" for at, w in enumerate(widths)]
    return [
        "| " + " | ".join(
            cell.ljust(w) if at < named else cell.rjust(w)
            for at, (cell, w) in enumerate(zip(line, widths, strict=True))
        ) + " |"
        for line in (heads, rule, *cells)
    ]  # fmt: skip


def _verdict(rows: Sequence[Row]) -> str:
    passed = sum(row["verdict"] == "passed" for row in rows)
    if passed == len(rows):
        return "passed"
    return "FAILED" if len(rows) == 1 else f"FAILED {len(rows) - passed} of {len(rows)}"


def _median(key: str, per_unit: int, digits: int) -> Callable[[Sequence[Row]], str]:
    def cell(rows: Sequence[Row]) -> str:
        values: list[Any] = sorted(v for row in rows if (v := row.get(key)) is not None)
        if not values:
            return _NOTHING
        return f"{values[(len(values) - 1) // 2] / per_unit:,.{digits}f}"

    return cell


def _p99(rows: Sequence[Row]) -> str:
    text = _median("fct_p99_ns", 1000, 3)(rows)
    return text if text == _NOTHING else marked(text, FCT["fct_p99_ns"], min(_samples(rows)))


def _samples(rows: Sequence[Row]) -> list[int]:
    """Of percentiles, a run each: the messages delivered."""
    return [row["delivered"] for row in rows if row.get("fct_p99_ns") is not None]


def samples(rows: Sequence[Row]) -> list[str]:
    """How many samples percentiles have, and what marks those of too few."""
    counts = _samples(rows)
    if not counts:
        return []
    least, most = min(counts), max(counts)
    n = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    few = least < samples_needed(FCT["fct_p99_ns"])
    return [f"p50 and p99 are of {n} messages a run.", *([f"{FOOTNOTE}."] if few else [])]


def _sum(key: str) -> Callable[[Sequence[Row]], str]:
    def cell(rows: Sequence[Row]) -> str:
        values = [value for row in rows if (value := row.get(key)) is not None]
        return f"{sum(values):,}" if values else _NOTHING

    return cell


_COLUMNS = (
    _Column("verdict", _verdict),
    _Column("p50 [us]", _median("fct_p50_ns", 1000, 3)),
    _Column("p99 [us]", _p99),
    _Column("goodput [Mbit/s]", _median("goodput_bps", 10**6, 3)),
    _Column("retransmitted", _sum("retransmitted")),
    _Column("spurious", _sum("spurious_retransmissions")),
)
