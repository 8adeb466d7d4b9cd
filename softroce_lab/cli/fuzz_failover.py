# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab fuzz failover`: seeds against queue pairs that move to another NIC and back."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

from softroce_lab import units
from softroce_lab.cli import fuzz_findings, typed
from softroce_lab.cli.screen import Counting
from softroce_lab.experiment import code_version
from softroce_lab.experiment.fuzz.failover import campaign as failovers
from softroce_lab.experiment.fuzz.failover import case as cases
from softroce_lab.experiment.fuzz.failover.campaign import Campaign, Seen
from softroce_lab.inputs import yaml_source


@dataclasses.dataclass(frozen=True, slots=True)
class Keeping:
    """What becomes of cases that fail."""

    folder: Path
    shrinks: bool


def fuzz(
    seeds: range,
    jobs: int,
    seconds: float | None,
    case: Path | None,
    keeping: Keeping,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run them, and print what they came to. Exits with 1 if an invariant fails."""
    commit = code_version.name()
    with Counting("fuzz", "seeds", quiet=quiet) as screen:
        if case is not None:
            found = Campaign()
            found.add(failovers.run_drawn(cases.of(yaml_source.read(case)), str(case)))
        else:
            screen.begin(len(seeds) if seconds is None else None)
            found = failovers.campaign(
                seeds,
                jobs,
                until=fuzz_findings.over_after(seconds),
                progress=fuzz_findings.progress(screen, _title),
            )
        broken = [each for each in found.violations if each.drawn is not None]
        files = [_kept(each, keeping, screen) for each in broken[: fuzz_findings.MOST_KEPT]]
        if found.interrupted:
            screen.say(f"stopped; --seed {seeds.start + found.seeds} goes on")
    about = {"commit": commit, "files": [str(file) for file in files]}
    document = {**found.document(), **about}
    if as_json:
        print(json.dumps(document, indent=1))
    else:
        _print(found, document)
    fuzz_findings.end(found)


def _kept(violation: Seen, keeping: Keeping, screen: Counting) -> Path:
    """The file of its case, reduced if that is asked for."""
    small = failovers.shrink(violation, screen.say) if keeping.shrinks else violation
    assert small.drawn is not None  # noqa: S101 - the caller has seen that it is there
    keeping.folder.mkdir(parents=True, exist_ok=True)
    name = f"seed-{small.seed}" if small.file is None else f"{Path(small.file).stem}-small"
    file = keeping.folder / f"{name}-failover.yaml"
    again = shlex.join([typed.name(), "fuzz", "failover", "--case", str(file)])
    what = " ".join(small.what.split())
    file.write_text(f"# {what}\n# {again}\n{cases.text(small.drawn)}")
    return file


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
    fuzz_findings.show_files(document["files"])
