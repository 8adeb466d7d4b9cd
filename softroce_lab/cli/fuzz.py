# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab fuzz`: seeds against the transports, on the virtual clock, until one of them breaks."""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from softroce_lab import units
from softroce_lab.cli import fuzz_failover, fuzz_findings, typed
from softroce_lab.cli.experiment_options import KnownTransports
from softroce_lab.cli.modes import ModalCommand, Mode, flag
from softroce_lab.cli.options import Duration, Json, Quiet, parse_duration_s
from softroce_lab.cli.screen import Counting
from softroce_lab.errors import UserError
from softroce_lab.experiment import code_version, spec
from softroce_lab.experiment.fuzz import seeds as experiment_fuzz
from softroce_lab.experiment.fuzz.seeds import Campaign, Violation
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.inputs import yaml_source
from softroce_lab.inputs.yaml_source import Source
from softroce_lab.topology.model import SEED_MAX

app = typer.Typer(add_completion=False)

_SEEDS = 200


class _Command(ModalCommand):
    """A command that rejects options without effect in the chosen mode."""

    modes = (
        Mode("--case", flag("case"), ("seeds", "first", "duration", "jobs")),
        Mode("failover", lambda params: params["story"] == Story.FAILOVER, ("transport",)),
    )


class Story(enum.StrEnum):
    """What seeds are drawn for."""

    TRANSPORTS = "transports"
    FAILOVER = "failover"


@app.command(cls=_Command)
def fuzz(
    story: Annotated[
        Story,
        typer.Argument(
            help="transports: workloads over every transport; failover: queue pairs with a backup "
            "on another NIC."
        ),
    ] = Story.TRANSPORTS,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, help=f"Number of seeds; default: {_SEEDS}, or no limit with --duration."
        ),
    ] = None,
    first: Annotated[int, typer.Option("--seed", min=0, help="The first seed.")] = 0,
    duration: Duration = None,
    transport: KnownTransports = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, max=1024, help="Processes; default: one per core."),
    ] = None,
    case: Annotated[
        Path | None,
        typer.Option(help="Run only the case of this file, which an earlier failure wrote."),
    ] = None,
    keep: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="Directory of the failed cases."),
    ] = Path("fuzz-failures"),
    no_shrink: Annotated[
        bool, typer.Option("--no-shrink", help="Keep a failing case as it was drawn.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Generate fabrics, workloads and faults from seeds; run every transport; check invariants.

    Exits with 1 if an invariant fails, and prints the command that reproduces it.
    """
    _check_seeds(first, seeds)
    _check_keep(keep)
    seconds = None if duration is None else parse_duration_s(duration)
    if story is Story.FAILOVER:
        fuzz_failover.fuzz(
            _numbers(first, seeds, seconds), jobs or os.cpu_count() or 1, seconds, case,
            fuzz_failover.Keeping(keep, not no_shrink), as_json=as_json, quiet=quiet,
        )  # fmt: skip
        return
    transports = experiment_fuzz.transports_of(transport)
    commit = code_version.name()  # of what runs now, whatever the files are by its end
    with Counting("fuzz", "seeds", quiet=quiet) as screen:
        if case is not None:
            found = _one_case(case, transports)
        else:
            numbers = _numbers(first, seeds, seconds)
            screen.begin(None if seeds is None and seconds is not None else len(numbers))
            found = _many(numbers, transports, jobs or os.cpu_count() or 1, seconds, screen)
        files = [
            _kept(each, keep, not no_shrink, screen)
            for each in found.violations[: fuzz_findings.MOST_KEPT]
        ]
        if found.interrupted:
            screen.say(f"stopped; --seed {first + found.seeds} goes on")
    about = {"commit": commit, "files": [str(file) for file in files]}
    document = {**found.document(), **about}
    if as_json:
        print(json.dumps(document, indent=1))
    else:
        _print(found, files, document)
    fuzz_findings.end(found)


def _check_seeds(first: int, count: int | None) -> None:
    """UserError for seeds that no experiment has."""
    if first > SEED_MAX:
        raise UserError(f"--seed {first} is no seed", hint=f"the last one is {SEED_MAX}")
    left = SEED_MAX + 1 - first
    if (count or 1) > left:
        what = f"--seeds {count}: from {first} on there are {left}"
        raise UserError(what, hint=f"the last seed is {SEED_MAX}")


def _numbers(first: int, seeds: int | None, seconds: float | None) -> range:
    """The seeds to run: with a duration alone, as many as there are."""
    count = seeds if seeds is not None or seconds is not None else _SEEDS
    return range(first, SEED_MAX + 1 if count is None else min(first + count, SEED_MAX + 1))


def _check_keep(folder: Path) -> None:
    """UserError now, for what would be noticed only when a case has failed."""
    there = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise UserError(f"cannot write into {folder}", hint="-o DIR: where cases go that fail")


def _many(
    seeds: Iterable[int],
    transports: tuple[Transport, ...],
    jobs: int,
    seconds: float | None,
    screen: Counting,
) -> Campaign:
    return experiment_fuzz.campaign(
        experiment_fuzz.in_processes(seeds, transports, jobs), transports,
        until=fuzz_findings.over_after(seconds), progress=fuzz_findings.progress(screen, _title),
    )  # fmt: skip


def _title(violation: Violation) -> str:
    return f"seed {violation.seed}, {violation.transport.label}"


def _one_case(file: Path, transports: tuple[Transport, ...]) -> Campaign:
    source = yaml_source.read(file)
    experiment = spec.of(source)  # reports errors with their place
    _check_case(source)
    campaign = Campaign(transports=transports)
    seen = experiment_fuzz.run_case(source.data, experiment.seeds[0], transports)
    violations = (dataclasses.replace(each, file=str(file)) for each in seen.violations)
    campaign.add(dataclasses.replace(seen, violations=tuple(violations)))
    return campaign


def _check_case(source: Source) -> None:
    """UserError for an experiment that is not written as seeds are drawn, and so cannot shrink."""
    hint = "lab run runs experiments; a case has all keys of the files in fuzz-failures"
    for key in ("lb", "depth", "faults"):
        if key not in source.data:
            raise source.error((), f"this is no case of lab fuzz: it has no {key!r}", hint=hint)
    topology = source.data["topology"]
    if not (isinstance(topology, dict) and "generator" in topology):
        raise source.error(("topology",), "a case of lab fuzz has a generator", hint=hint)
    for number, fault in enumerate(source.data["faults"]):
        if isinstance(fault, str):
            what = "a case of lab fuzz has its faults written out"
            raise source.error(("faults", number), what, hint=hint)


def _kept(violation: Violation, folder: Path, shrinks: bool, screen: Counting) -> Path:
    """The file of its case, reduced if the case can shrink."""
    tries = shrinks and violation.shrinks
    small = experiment_fuzz.shrink(violation, screen.say) if tries else violation
    folder.mkdir(parents=True, exist_ok=True)
    name = (
        f"seed-{violation.seed}" if violation.file is None else f"{Path(violation.file).stem}-small"
    )
    file = folder / f"{name}-{violation.transport.label}.yaml"
    again = shlex.join([typed.name(), "fuzz", "--transport", small.transport.reference])
    what = small.what.replace("\n", "\n# ")
    file.write_text(f"# {what}\n# {again} --case {file}\n{small.case}")
    return file


def _print(found: Campaign, files: list[Path], document: dict[str, Any]) -> None:
    runs = units.format_count(found.runs, "run")
    print(f"{units.format_count(found.seeds, 'seed')}, {runs}, {len(found.violations)} violations")
    print(f"commit {document['commit']}; median of {found.median_hosts} hosts; met in seeds:")
    fuzz_findings.show(found, _title)
    fuzz_findings.show_files(files)
