# SPDX-License-Identifier: GPL-2.0-or-later
"""Progress on standard error: bars on a terminal, lines elsewhere, nothing if quiet."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from softroce_lab import units

_PRINTED = 20  # times, where standard error is no terminal
_LEAST_S, _MOST_S = 1.0, 600.0  # between two times


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


class Counting(Screen):
    """How many of the `things` of a verb are done; lines are for each twentieth, or ten minutes."""

    def __init__(self, verb: str, things: str, *, quiet: bool) -> None:
        super().__init__(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(things),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), quiet=quiet,
        )  # fmt: skip
        self._verb, self._things = verb, things
        self._task = self._progress.add_task(verb, total=None)
        self._total: int | None = None
        self._done = 0
        self._began_s = self._printed_at_s = time.monotonic()

    def begin(self, total: int | None) -> None:
        """So many are to be done; None: as many as there is time for."""
        self._total = total
        self._began_s = time.monotonic()
        if total is not None:
            self._progress.update(self._task, total=max(total, 1), completed=0 if total else 1)

    def add(self, bad: str = "") -> None:
        """One is over; `bad`: what went wrong until now, in words."""
        self._done += 1
        bad = f", {bad}" if bad else ""
        self._progress.update(self._task, completed=self._done, description=self._verb + bad)
        if not self._console.is_terminal and self._is_time():
            self._printed_at_s = time.monotonic()
            of = "" if self._total is None else f" of {self._total}"
            self.say(f"{self._done}{of} {self._things}{bad}{self._left()}")

    def _is_time(self) -> bool:
        since_s = time.monotonic() - self._printed_at_s
        if self._total is None or since_s >= _MOST_S:
            return since_s >= _MOST_S
        twentieth = self._done % math.ceil(self._total / _PRINTED) == 0
        return self._done == self._total or (twentieth and since_s >= _LEAST_S)

    def _left(self) -> str:
        """At the mean speed since the begin: rich forgets what took longer than half a minute."""
        left = (self._total or 0) - self._done
        if left <= 0:
            return ""
        remaining_s = (time.monotonic() - self._began_s) / self._done * left
        return f", about {units.format_duration(remaining_s * 1e9)} left"
