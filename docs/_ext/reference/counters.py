# SPDX-License-Identifier: GPL-2.0-or-later
"""Counters of ports, links, RNICs and queue pairs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from reference import markdown
from reference.markdown import code, prose
from softroce_lab import paths
from softroce_lab.telemetry import counters
from softroce_lab.telemetry.counters import Counter

_HEADER = paths.PROJECT_ROOT / "native/engine/counters.hpp"
_ENTRY = re.compile(r"X\((\w+)\)\s*/\* (.*?) \*/")


def page() -> str:
    """Every counter that `lab inspect stats` shows."""
    about = (
        "`lab inspect stats` shows these counters. Ports and links count all frames since the lab "
        "came up. RNICs and queue pairs count since the process that owns the port began."
    )
    queue_pairs, rnic = _native()
    return markdown.page(
        "Counters",
        about,
        _section("Ports", "Names of IBA 16.1.3.5.", counters.PORT.items()),
        _section("Directed links", "As in `lab top`.", counters.LINK.items()),
        _hardware("Names of mlx5", counters.MLX5),
        _hardware("Names of Linux's rxe", counters.RXE),
        _hardware("Ports of a process", counters.PROCESS_PORT),
        _section("Queue pairs", "The engine's own names.", queue_pairs),
        _section("RNICs", "The engine's own names, beside the sums of all queue pairs.", rnic),
    )


def _section(title: str, about: str, rows: Iterable[tuple[str, str]]) -> str:
    cells = [(code(name), prose(text)) for name, text in rows]
    return markdown.section(title, about, markdown.table(["name", "counts"], cells))


def _hardware(title: str, entries: Iterable[Counter]) -> str:
    rows = [
        (code(each.name), prose(each.meaning), _sum(each), "yes" if each.per_qp else "no")
        for each in entries
    ]
    about = "Each is a sum of the engine's own counters."
    head = ["name", "counts", "sum of", "of queue pairs"]
    return markdown.section(title, about, markdown.table(head, rows))


def _sum(counter: Counter) -> str:
    text = " + ".join(map(code, counter.of)) + "".join(f" - {code(name)}" for name in counter.less)
    return text if counter.divisor == 1 else f"({text}) / {counter.divisor}"


def _native() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """(name, description) of queue pairs' counters, and of what only the RNIC counts."""
    text = _HEADER.read_text(encoding="utf-8")
    queue_pairs, _, rnic = text.partition("#define SOFTROCE_RNIC_COUNTERS")
    return _ENTRY.findall(queue_pairs), _ENTRY.findall(rnic)
