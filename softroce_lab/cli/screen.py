# SPDX-License-Identifier: GPL-2.0-or-later
"""Progress on standard error: bars on a terminal, lines elsewhere, nothing if quiet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn


class Screen:
    """What one command shows while it works; `columns` are a bar's, as rich has them."""

    def __init__(self, *columns: ProgressColumn, quiet: bool) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True)
        disable = quiet or not self._console.is_terminal
        self._progress = Progress(*columns, console=self._console, disable=disable)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print that a step begins."""
        if not self._quiet:
            self._console.print(f"lab: {text}", highlight=False, markup=False, soft_wrap=True)

    def bar(self, name: str, total: int, amount: str) -> Callable[[int], None]:
        """Begin a part of the work; return a function that takes how much of `total` is done."""
        if not self._console.is_terminal:
            self.say(f"{name}: {amount}")
        task = self._progress.add_task(name, total=max(total, 1))
        return lambda done: self._progress.update(task, completed=done)
