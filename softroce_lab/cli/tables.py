# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables on the terminal: as wide as it, or, where the output is no terminal, as they need."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from softroce_lab.experiment.workload_table import Line

_UNBOUNDED = 10_000  # columns: of what is not a terminal


def table(*headings: str, no_wrap: bool = False) -> Table:
    """Columns on the right; on the left for a heading that ends with `<`."""
    made = Table(box=None, pad_edge=False)
    for heading in headings:
        left = heading.endswith("<")
        made.add_column(heading.removesuffix("<"), justify="left" if left else "right",
                        no_wrap=no_wrap)  # fmt: skip
    return made


def show(made: Table) -> None:
    """Print a table."""
    console = Console()
    (console if console.is_terminal else Console(width=_UNBOUNDED)).print(made)


def show_figures(names: Sequence[str], lines: Sequence[Line]) -> None:
    """A column each transport; where the terminal has no room for all, below each other."""
    from softroce_lab.experiment import workload_table  # late: it takes a while

    width = Console().width if sys.stdout.isatty() else _UNBOUNDED
    for columns in workload_table.beside(list(names), lines, width):
        made = Table(box=None, pad_edge=False, padding=(0, workload_table.GAP, 0, 0))
        made.add_column("transport")
        for at in columns:
            made.add_column(names[at], justify="right", no_wrap=True)
        for line in lines:
            made.add_row(line.title, *(line.cells[at] for at in columns))
        if columns.start:
            print()
        Console(width=_UNBOUNDED).print(made)
