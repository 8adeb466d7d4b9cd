# SPDX-License-Identifier: GPL-2.0-or-later
"""The table that compares transports: a column each, its runs of all seeds taken together.

Of times and rates the median run, with the least and the largest behind it; of counts the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from softroce_lab import units

Row = Mapping[str, Any]  # of `WorkloadRun.summary`

GAP = 2  # characters between columns


class Line(NamedTuple):
    """A line of the table."""

    title: str
    cells: list[str]


def lines(rows: Sequence[Row]) -> tuple[list[str], list[Line]]:
    """The transports in their order, and the lines; those without any news are left out."""
    names = list(dict.fromkeys(row["transport"] for row in rows))
    groups = [[row for row in rows if row["transport"] == name] for name in names]
    found = []
    for title, show, always in _LINES:
        cells = [show(group) for group in groups]
        if always or any(cell not in _NO_NEWS for cell in cells):
            found.append(Line(title, cells))
    return names, found


def beside(names: Sequence[str], lines: Sequence[Line], width: int) -> Iterator[range]:
    """The columns that stand side by side in so many characters: in as many tables as it takes.

    A table has one column at least, however wide that is.
    """
    left = width - max((len(line.title) for line in lines), default=0)
    first, taken = 0, 0
    for at, name in enumerate(names):
        column = GAP + max(len(name), *(len(line.cells[at]) for line in lines))
        if at > first and taken + column > left:
            yield range(first, at)
            first, taken = at, 0
        taken += column
    yield range(first, len(names))


_NO_NEWS = ("", "0", "-")


def _spread(key: str, form: Callable[[float], str]) -> Callable[[Sequence[Row]], str]:
    def show(rows: Sequence[Row]) -> str:
        values = sorted(row[key] for row in rows if row[key] is not None)
        if not values:
            return "-"
        least, middle, most = (
            form(values[at]) for at in (0, (len(values) - 1) // 2, len(values) - 1)
        )
        return middle if least == most else f"{middle} [{least}, {most}]"

    return show


def _sum(key: str) -> Callable[[Sequence[Row]], str]:
    return lambda rows: f"{sum(row[key] for row in rows):,}"


def _delivered(rows: Sequence[Row]) -> str:
    done, total = (sum(row[key] for row in rows) for key in ("delivered", "messages"))
    return f"{done:,}" if done == total else f"{done:,} of {total:,}"


def _verdict(rows: Sequence[Row]) -> str:
    passed = sum(row["verdict"] == "passed" for row in rows)
    if passed == len(rows):
        return "passed"
    return "FAILED" if not passed else f"FAILED {len(rows) - passed} of {len(rows)}"


def _verified(rows: Sequence[Row]) -> str:
    found = {row["verified"] for row in rows}
    return "NO" if False in found else "yes" if True in found else "-"


def _operations(rows: Sequence[Row]) -> str:
    """Empty where it would repeat the makespan."""
    if all(row["operation_p50_ns"] == row["makespan_ns"] for row in rows):
        return ""
    return _spread("operation_p50_ns", units.format_duration)(rows)


def _faithful(rows: Sequence[Row]) -> str:
    judged = [row["fidelity"]["verdict"] for row in rows if row["fidelity"]]
    return "" if not judged else next((each for each in judged if each != "faithful"), judged[0])


_LINES: list[tuple[str, Callable[[Sequence[Row]], str], bool]] = [
    ("verdict", _verdict, True),
    ("messages delivered", _delivered, True),
    ("verified, every byte", _verified, False),
    ("makespan", _spread("makespan_ns", units.format_duration), True),
    ("p50 operation", _operations, False),
    ("goodput", _spread("goodput_bps", units.format_rate), True),
    ("p50 message completion", _spread("fct_p50_ns", units.format_duration), True),
    ("p99 message completion", _spread("fct_p99_ns", units.format_duration), True),
    ("p99.9 message completion", _spread("fct_p999_ns", units.format_duration), True),
    ("data packets sent", _sum("packets_sent"), True),
    ("control packets", _sum("control_packets"), False),
    ("injected drops", _sum("injected_drops"), True),
    ("of these, full queues", _sum("queue_drops"), False),
    ("ECN marks", _sum("marked"), False),
    ("trimmed", _sum("trimmed"), False),
    ("emulator drops", _sum("emulator_drops"), False),
    ("resent", _sum("resent"), True),
    ("received again", _sum("spurious_resent"), True),
    ("QP contexts missed", _sum("contexts_missed"), False),
    ("fidelity", _faithful, False),
]
