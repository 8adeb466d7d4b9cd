# SPDX-License-Identifier: GPL-2.0-or-later
"""Progress of many runs or seeds on standard error: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import math
import time

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from softroce_lab import units
from softroce_lab.cli.screen import Screen

_PRINTED = 20  # times, where standard error is no terminal
_LEAST_S, _MOST_S = 1.0, 600.0  # between two times


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
