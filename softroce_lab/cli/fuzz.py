# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab fuzz`: seeds against transports, failovers or operations, on the virtual clock."""

from __future__ import annotations

import dataclasses
import enum
import os
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from softroce_lab import units
from softroce_lab.cli import typed
from softroce_lab.cli.experiment_options import KnownTransports
from softroce_lab.cli.modes import ModalCommand, Mode, flag
from softroce_lab.cli.options import Duration, Json, Quiet, parse_duration_s, print_json
from softroce_lab.cli.screen import Counting
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.experiment import code_version, spec
from softroce_lab.experiment.fuzz import operations
from softroce_lab.experiment.fuzz import seeds as experiment_fuzz
from softroce_lab.experiment.fuzz.failover import campaign as failovers
from softroce_lab.experiment.fuzz.failover import case as failover_cases
from softroce_lab.experiment.fuzz.failover.campaign import Campaign as FailoverCampaign
from softroce_lab.experiment.fuzz.failover.campaign import Seen
from softroce_lab.experiment.fuzz.seeds import Campaign, Violation
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.inputs import yaml_source
from softroce_lab.inputs.yaml_source import Source
from softroce_lab.topology.model import SEED_MAX

app = typer.Typer(add_completion=False)

_SEEDS = 200
_RARE = 0.05
_MOST_KEPT = 3
"""Cases that become files: to reduce one takes time."""

Say = Callable[[str], None]


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
    OPERATIONS = "operations"


@app.command(cls=_Command)
def fuzz(
    story: Annotated[
        Story,
        typer.Argument(
            help="transports: workloads over every transport; failover: queue pairs with a backup "
            "on another NIC; operations: WRITE, SEND, READ and atomics of queue pairs, judged by "
            "their order."
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
    subject: Any = _Failovers()
    if story is Story.TRANSPORTS:
        subject = _Transports(experiment_fuzz.transports_of(transport))
    elif story is Story.OPERATIONS:
        subject = _Operations(operations.transports_of(transport))
    commit = code_version.name()  # of what runs now, whatever the files are by its end
    with Counting("fuzz", "seeds", quiet=quiet) as screen:
        if case is not None:
            found = subject.one_case(case)
        else:
            numbers = _numbers(first, seeds, seconds)
            screen.begin(None if seeds is None and seconds is not None else len(numbers))
            found = subject.many(
                numbers, jobs or os.cpu_count() or 1, until=_over_after(seconds),
                progress=_progress(screen, subject.title),
            )  # fmt: skip
        files = [
            _kept(subject, each, keep, not no_shrink, screen.say)
            for each in [*filter(subject.can_be_kept, found.violations)][:_MOST_KEPT]
        ]
        if found.interrupted:
            screen.say(f"stopped; --seed {first + found.seeds} goes on")
    if as_json:
        print_json({**found.document(), "commit": commit, "files": [str(file) for file in files]})
    else:
        _print(subject, found, files, commit)
    if found.interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if found.violations:
        raise typer.Exit(ExitCode.FAILED)


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


def _over_after(seconds: float | None) -> Callable[[], bool]:
    """Whether so much time has passed since now; None: it never has."""
    end = None if seconds is None else time.monotonic() + seconds
    return lambda: end is not None and time.monotonic() >= end


def _progress(screen: Counting, title: Callable[[Any], str]) -> Callable[[Any], None]:
    """What to do with a campaign after every seed; `title` of a violation."""
    shown = 0

    def after(found: Any) -> None:
        nonlocal shown
        for each in found.violations[shown:]:
            screen.say(f"{title(each)}: {each.what}")
        shown = len(found.violations)
        screen.add(f"{shown} broken" if shown else "")

    return after


def _kept(subject: Any, violation: Any, folder: Path, shrinks: bool, say: Say) -> Path:
    """The file of its case, reduced if the case can shrink."""
    small = subject.shrink(violation, say) if shrinks else violation
    folder.mkdir(parents=True, exist_ok=True)
    name = f"seed-{small.seed}" if small.file is None else f"{Path(small.file).stem}-small"
    file = folder / f"{name}-{subject.suffix(small)}.yaml"
    again = shlex.join([typed.name(), "fuzz", *subject.words(small), "--case", str(file)])
    what = small.what.replace("\n", "\n# ")
    file.write_text(f"# {what}\n# {again}\n{subject.text(small)}")
    return file


def _print(subject: Any, found: Any, files: list[Path], commit: str) -> None:
    """The coverage, unless it was cut short by Ctrl-C, all violations, and where the cases are."""
    for line in subject.summary(found, commit):
        print(line)
    for name, share in () if found.interrupted else found.coverage.items():
        print(f"  {share:7.2%}  {name}{' (rare)' if share < _RARE else ''}")
    for violation in found.violations:
        print(f"{subject.title(violation)}: {violation.what}")
        print(f"  again: {typed.name()}{violation.replay.removeprefix('lab')}")
    for file in files:
        print(f"small case: {file}; its first lines have what failed, and the command")


class _Transports:
    """Workloads over these transports."""

    def __init__(self, transports: tuple[Transport, ...]) -> None:
        self._transports = transports

    def one_case(self, file: Path) -> Campaign:
        """A campaign of the case in a file. UserError."""
        source = yaml_source.read(file)
        experiment = spec.of(source)  # reports errors with their place
        _check_case(source)
        campaign = Campaign(transports=self._transports)
        seen = experiment_fuzz.run_case(source.data, experiment.seeds[0], self._transports)
        violations = (dataclasses.replace(each, file=str(file)) for each in seen.violations)
        campaign.add(dataclasses.replace(seen, violations=tuple(violations)))
        return campaign

    def many(self, seeds: range, jobs: int, **how: Any) -> Campaign:
        """A campaign of all seeds."""
        seen = experiment_fuzz.in_processes(seeds, self._transports, jobs)
        return experiment_fuzz.campaign(seen, self._transports, **how)

    def can_be_kept(self, _: Violation) -> bool:
        return True

    def title(self, violation: Violation) -> str:
        return f"seed {violation.seed}, {violation.transport.label}"

    def shrink(self, violation: Violation, say: Say) -> Violation:
        return experiment_fuzz.shrink(violation, say) if violation.shrinks else violation

    def suffix(self, violation: Violation) -> str:
        return violation.transport.label

    def words(self, violation: Violation) -> list[str]:
        return ["--transport", violation.transport.reference]

    def text(self, violation: Violation) -> str:
        return violation.case

    def summary(self, found: Campaign, commit: str) -> Iterator[str]:
        counts = units.format_count(found.seeds, "seed"), units.format_count(found.runs, "run")
        yield f"{', '.join(counts)}, {len(found.violations)} violations"
        yield f"commit {commit}; median of {found.median_hosts} hosts; met in seeds:"


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


class _Failovers:
    """Queue pairs that move to another NIC and back."""

    def one_case(self, file: Path) -> FailoverCampaign:
        """A campaign of the case in a file. UserError."""
        found = FailoverCampaign()
        drawn = failover_cases.of(yaml_source.read(file))
        found.add(failovers.run_drawn(drawn, str(file)))
        return found

    def many(self, seeds: range, jobs: int, **how: Any) -> FailoverCampaign:
        """A campaign of all seeds."""
        return failovers.campaign(seeds, jobs, **how)

    def can_be_kept(self, violation: Seen) -> bool:
        return violation.drawn is not None

    def title(self, violation: Seen) -> str:
        return f"seed {violation.seed}"

    def shrink(self, violation: Seen, say: Say) -> Seen:
        return failovers.shrink(violation, say)

    def suffix(self, _: Seen) -> str:
        return "failover"

    def words(self, _: Seen) -> list[str]:
        return ["failover"]

    def text(self, violation: Seen) -> str:
        return failover_cases.text(violation.drawn)

    def summary(self, found: FailoverCampaign, commit: str) -> Iterator[str]:
        yield (
            f"{units.format_count(found.seeds, 'seed')}, {found.moves:,} moves, "
            f"{found.surfaced:,} surfaced errors, {len(found.violations)} violations"
        )
        yield f"commit {commit}; met in seeds:"


class _Operations:
    """Operations of queue pairs over these transports."""

    def __init__(self, transports: tuple[str, ...]) -> None:
        self._transports = transports

    def one_case(self, file: Path) -> operations.Campaign:
        """A campaign of the case in a file. UserError."""
        found = operations.Campaign()
        trial = operations.case_of(yaml_source.read(file))
        found.add(operations.run_trial(trial, self._transports, str(file)))
        return found

    def many(self, seeds: range, jobs: int, **how: Any) -> operations.Campaign:
        """A campaign of all seeds."""
        return operations.campaign(seeds, self._transports, jobs, **how)

    def can_be_kept(self, violation: operations.Violation) -> bool:
        return bool(violation.posts)

    def title(self, violation: operations.Violation) -> str:
        return f"seed {violation.seed}, {violation.transport}"

    def shrink(self, violation: operations.Violation, say: Say) -> operations.Violation:
        return operations.shrink(violation, say)

    def suffix(self, violation: operations.Violation) -> str:
        return f"operations-{violation.transport}"

    def words(self, violation: operations.Violation) -> list[str]:
        return ["operations", "--transport", violation.transport]

    def text(self, violation: operations.Violation) -> str:
        return operations.case_text(violation)

    def summary(self, found: operations.Campaign, commit: str) -> Iterator[str]:
        counts = units.format_count(found.seeds, "seed"), units.format_count(found.runs, "run")
        yield f"{', '.join(counts)}, {len(found.violations)} violations"
        yield f"commit {commit}; met in seeds:"
