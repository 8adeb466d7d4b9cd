# SPDX-License-Identifier: GPL-2.0-or-later
"""What `lab fuzz` shows of a campaign, and how it ends: of transports and of failovers alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import typer

from softroce_lab.cli import typed
from softroce_lab.cli.screen import Counting
from softroce_lab.errors import ExitCode

_RARE = 0.05
MOST_KEPT = 3
"""Cases that become files: to reduce one takes time."""


def over_after(seconds: float | None) -> Callable[[], bool]:
    """Whether so much time has passed since now; None: it never has."""
    end = None if seconds is None else time.monotonic() + seconds
    return lambda: end is not None and time.monotonic() >= end


def progress(screen: Counting, title: Callable[[Any], str]) -> Callable[[Any], None]:
    """What to do with a campaign after every seed; `title` of a violation."""
    shown = 0

    def after(found: Any) -> None:
        nonlocal shown
        for each in found.violations[shown:]:
            screen.say(f"{title(each)}: {each.what}")
        shown = len(found.violations)
        screen.add(f"{shown} broken" if shown else "")

    return after


def show(found: Any, title: Callable[[Any], str]) -> None:
    """Print the coverage, unless it was cut short by Ctrl-C, and all violations."""
    for name, share in () if found.interrupted else found.coverage.items():
        print(f"  {share:7.2%}  {name}{' (rare)' if share < _RARE else ''}")
    for violation in found.violations:
        print(f"{title(violation)}: {violation.what}")
        print(f"  again: {typed.name()}{violation.replay.removeprefix('lab')}")


def show_files(files: Iterable[object]) -> None:
    """Print where the cases are."""
    for file in files:
        print(f"small case: {file}; its first lines have what failed, and the command")


def end(found: Any) -> None:
    """Exit with what the campaign came to."""
    if found.interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if found.violations:
        raise typer.Exit(ExitCode.FAILED)
