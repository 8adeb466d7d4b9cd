# SPDX-License-Identifier: GPL-2.0-or-later
"""The table of a run's figures, a column each transport, as wide as the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from softroce_lab.experiment import workload_table
from softroce_lab.experiment.workload_table import Line

_UNBOUNDED = 10_000  # columns: of what is not a terminal


def show(names: list[str], lines: Sequence[Line]) -> None:
    """Print it; where the terminal has no room for all transports, below each other."""
    width = Console().width if sys.stdout.isatty() else _UNBOUNDED
    for columns in workload_table.beside(names, lines, width):
        table = Table(box=None, pad_edge=False, padding=(0, workload_table.GAP, 0, 0))
        table.add_column("transport")
        for at in columns:
            table.add_column(names[at], justify="right", no_wrap=True)
        for line in lines:
            table.add_row(line.title, *(line.cells[at] for at in columns))
        if columns.start:
            print()
        Console(width=_UNBOUNDED).print(table)
