# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab fuzz --failover`: seeds against queue pairs that move to another NIC and back."""

from __future__ import annotations

import json
from typing import Any

from softroce_lab import units
from softroce_lab.cli.experiments import fuzz_findings
from softroce_lab.cli.experiments.counting import Counting
from softroce_lab.experiment import code_version
from softroce_lab.fuzz.failover import campaign as failovers
from softroce_lab.fuzz.failover.campaign import Campaign, Seen


def fuzz(seeds: range, jobs: int, minutes: float | None, *, as_json: bool, quiet: bool) -> None:
    """Run them, and print what they came to. Exits with 1 if an invariant fails."""
    commit = code_version.name()
    with Counting("fuzz", "seeds", quiet=quiet) as screen:
        screen.begin(len(seeds) if minutes is None else None)
        found = failovers.campaign(
            seeds,
            jobs,
            until=fuzz_findings.over_after(minutes),
            progress=fuzz_findings.progress(screen, _title),
        )
        if found.interrupted:
            screen.say(f"stopped; --from {seeds.start + found.seeds} goes on")
    document = {**found.document(), "commit": commit}
    if as_json:
        print(json.dumps(document, indent=1))
    else:
        _print(found, document)
    fuzz_findings.end(found)


def _title(violation: Seen) -> str:
    return f"seed {violation.seed}"


def _print(found: Campaign, document: dict[str, Any]) -> None:
    moves, surfaced = (f"{number:,}" for number in (found.moves, found.surfaced))
    print(
        f"{units.format_count(found.seeds, 'seed')}, {moves} moves, {surfaced} surfaced errors, "
        f"{len(found.violations)} violations"
    )
    print(f"commit {document['commit']}; met in seeds:")
    fuzz_findings.show(found, _title)
