# SPDX-License-Identifier: GPL-2.0-or-later
"""Blame for a run while the screen counts the repeated runs."""

from __future__ import annotations

from softroce_lab.cli.experiments.counting import Counting
from softroce_lab.report.blame import search
from softroce_lab.report.blame.charges import Blame
from softroce_lab.report.blame.investigation import Investigation


def searched(known: Investigation, most_runs: int, *, quiet: bool) -> Blame:
    """What losses cost it, by `most_runs` runs at most. RunError."""
    with Counting("repeating", f"runs of {known.known.name}", quiet=quiet) as screen:
        screen.begin(most_runs)
        return search.searched(known, most_runs, _Shown(screen).up_to)


class _Shown:
    """Runs that the screen has counted."""

    def __init__(self, screen: Counting) -> None:
        self._screen, self._count = screen, 0

    def up_to(self, made: int) -> None:
        while self._count < made:
            self._count += 1
            self._screen.add()
