# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab fuzz --failover`: seeds against queue pairs that move to another NIC and back."""

from __future__ import annotations

import json
import time
from typing import Any

import typer

from softroce_lab import units
from softroce_lab.cli.experiments.counting import Counting
from softroce_lab.errors import ExitCode
from softroce_lab.experiment import code_version
from softroce_lab.fuzz.failover import campaign as failovers
from softroce_lab.fuzz.failover.campaign import Campaign

_RARE = 0.05


def fuzz(seeds: range, jobs: int, minutes: float | None, *, as_json: bool, quiet: bool) -> None:
    """Run them, and print what they came to. Exits with 1 if an invariant fails."""
    commit = code_version.name()
    end = None if minutes is None else time.monotonic() + 60 * minutes
    with Counting("fuzz", "seeds", quiet=quiet) as screen:
        screen.begin(len(seeds) if minutes is None else None)
        found = failovers.campaign(
            seeds, jobs, until=lambda: end is not None and time.monotonic() >= end,
            progress=_progress(screen),
        )  # fmt: skip
        if found.interrupted:
            screen.say(f"stopped; --from {seeds.start + found.seeds} goes on")
    document = {**found.document(), "commit": commit}
    if as_json:
        print(json.dumps(document, indent=1))
    else:
        _print(found, document)
    if found.interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if found.violations:
        raise typer.Exit(ExitCode.FAILED)


def _progress(screen: Counting) -> Any:
    shown = 0

    def progress(found: Campaign) -> None:
        nonlocal shown
        for each in found.violations[shown:]:
            screen.say(f"seed {each.seed}: {each.what}")
        shown = len(found.violations)
        screen.add(f"{shown} broken" if shown else "")

    return progress


def _print(found: Campaign, document: dict[str, Any]) -> None:
    moves, surfaced = (f"{number:,}" for number in (found.moves, found.surfaced))
    print(
        f"{units.format_count(found.seeds, 'seed')}, {moves} moves, {surfaced} surfaced errors, "
        f"{len(found.violations)} violations"
    )
    print(f"commit {document['commit']}; met in seeds:")
    for name, share in found.coverage.items():
        print(f"  {share:7.2%}  {name}{' (rare)' if share < _RARE else ''}")
    for violation in found.violations:
        print(f"seed {violation.seed}: {violation.what}")
        print(f"  again: {violation.replay}")
