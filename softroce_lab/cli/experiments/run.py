# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab run`: an experiment on either clock, and the table that compares its transports."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from softroce_lab import units, writable
from softroce_lab.cli import completion, run_table, typed
from softroce_lab.cli.evidence.capture_options import Captured, Snap, WithCapture
from softroce_lab.cli.experiments import gates, transport_settings
from softroce_lab.cli.experiments.experiment_options import (
    EXPERIMENT,
    Changes,
    DryRun,
    RequireFaithful,
    RunsUnder,
    Seeds,
    Transports,
    overrides_of,
    print_ready,
)
from softroce_lab.cli.experiments.gates import Junit
from softroce_lab.cli.modes import Mode, flag, refuse
from softroce_lab.cli.options import Json, Quiet, Xdp, XdpMode
from softroce_lab.cli.screen import Screen
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.experiment import over_oracle, spec, workload_table
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment.capturing import Wanted
from softroce_lab.experiment.forecast import memory
from softroce_lab.experiment.forecast.blind_rules import compared
from softroce_lab.experiment.gates import fit
from softroce_lab.experiment.gates.expect import check_transports
from softroce_lab.experiment.hosts import program_words
from softroce_lab.experiment.reporter import Progress
from softroce_lab.experiment.run import BrokenOffError, Outcome
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.workload_run import WorkloadRun
from softroce_lab.faults import lines, text
from softroce_lab.inputs.validation import listed
from softroce_lab.recovery import registry
from softroce_lab.statistics import footnotes
from softroce_lab.telemetry import transitions
from softroce_lab.telemetry.capture_figures import SNAP_BYTES
from softroce_lab.workloads.programs import Programs

app = typer.Typer(add_completion=False)

_MOST_REASONS = 4
_MOST_STEPS = 16  # transitions of queue pairs with a backup, a run
_MOST_RULES = 12  # that --dry-run lists


class Clock(enum.StrEnum):
    """Where an experiment runs."""

    VIRTUAL = "virtual"
    REAL = "real"


class Payload(enum.StrEnum):
    """Whether packets carry bytes."""

    NONE = "none"
    VERIFY = "verify"


class RunScreen(Screen):
    """Progress in messages."""

    def __init__(self, *, quiet: bool) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        super().__init__(*columns, TextColumn("messages"), TimeRemainingColumn(), quiet=quiet)

    def run(self, name: str, messages: int) -> Progress:
        """A run begins."""
        return self.bar(name, messages, units.format_count(messages, "message"))


class _Command(WithCapture):
    """A command that rejects options without effect in the chosen mode."""

    modes = (
        *WithCapture.modes,
        Mode("--list", flag("show"), (
            "experiment", "clock", "seed", "payload", "deadline", "name", "faults",
            "changes", "capture", "output", "check", "require_faithful", "xdp", "junit", "quiet",
        )),
        Mode("--dry-run", flag("check"), ("output", "xdp", "junit", "quiet")),
    )  # fmt: skip


@app.command(cls=_Command)
def run(
    context: typer.Context,
    experiment: Annotated[str | None, EXPERIMENT] = None,
    clock: Annotated[
        Clock | None, typer.Option(help="Simulate (virtual), or run a lab on this machine (real).")
    ] = None,
    seed: Seeds = None,
    transport: Transports = None,
    payload: Annotated[
        Payload | None, typer.Option(help="Send no payload bytes, or send and verify them.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="Maximum duration of a run, on its clock.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the lab and of the run.")] = None,
    faults: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROFILE",
            help="Replace the file's faults by a profile, a file or a built-in one; none: no "
            "faults; may be repeated.",
            autocompletion=completion.profiles,
        ),
    ] = None,
    changes: Changes = None,
    capture: Captured = None,
    snap: Snap = SNAP_BYTES,
    output: RunsUnder = Path("runs"),
    show: Annotated[
        bool,
        typer.Option(
            "--list",
            help="List experiments and transports; with --transport: its knobs and options.",
        ),
    ] = False,
    check: DryRun = False,
    require_faithful: RequireFaithful = False,
    xdp: Xdp = XdpMode.AUTO,
    junit: Junit = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment: its workload over each of its transports, with each of its seeds."""
    if show:
        _list(transport, as_json=as_json)
        return
    if experiment is None:
        raise UserError("which experiment?", hint="a file, or a name: lab run --list")
    options = {
        "name": name, "clock": clock, "seeds": seed, "payload": payload, "deadline": deadline,
        "faults": None if faults is None else [each for each in faults if each != "none"],
    }  # fmt: skip
    given = {key: value for key, value in options.items() if value is not None}
    by = {"seeds": "--seed", "transports": "--transport"}
    replaced = [*given, *(["transports"] if transport else [])]
    overrides = overrides_of(changes, {key: by.get(key, f"--{key}") for key in replaced})
    overrides += [(key, _plain(value)) for key, value in given.items()]
    loaded = whole = spec.load(experiment, overrides)
    if transport:
        loaded = spec.with_transports(loaded, transport)
    check_transports(whole.source, [each.label for each in (*whole.transports, *loaded.transports)])
    fit.check(whole.source, [whole, loaded])
    if loaded.clock == "virtual":
        refuse(context, "the virtual clock", ("xdp",))
    if junit is not None:
        writable.check(junit, "--junit FILE")
    wanted = Wanted(tuple(capture or ()), snap)
    if check:
        experiment_run.check(loaded, wanted)
        _describe(loaded, as_json=as_json)
        return
    try:
        with RunScreen(quiet=quiet) as screen:
            outcome = experiment_run.run(
                loaded, screen, under=output, mode=xdp.value, capture=wanted
            )
    except BrokenOffError as error:
        _show(error.outcome, as_json=as_json, error=error)
        raise
    _show(outcome, as_json=as_json)
    judged = outcome.expected
    gates.write_junit(junit, loaded.name, [run.summary() for run in outcome.runs], judged)
    if not (outcome.passed and gates.held(judged)) or (require_faithful and not outcome.faithful):
        raise typer.Exit(ExitCode.FAILED)


def _list(transports: Sequence[str] | None, *, as_json: bool) -> None:
    if transports:
        transport_settings.print_settings(transports, as_json=as_json)
        return
    print_ready(spec.shipped(), as_json=as_json)
    if not as_json:
        known = ", ".join(registry.known())
        print(f"\ntransports: {known}; a policy of one's own: FILE:CLASS; LABEL= before either")
        print(f"knobs and options of one: {typed.name()} run --list --transport NAME")


def _show(outcome: Outcome, *, as_json: bool, error: BrokenOffError | None = None) -> None:
    """What was found; with `error`, until then."""
    if as_json:
        failed = {} if error is None else {"verdict": "failed", "error": error.what}
        print(json.dumps(outcome.document() | failed, indent=1))
    else:
        _print(outcome)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, enum.StrEnum) else value


def _describe(experiment: Experiment, *, as_json: bool) -> None:
    seed = experiment.seeds[0]
    plan, work = experiment.plan(seed), experiment.workload(seed)
    document = {
        **experiment.document(),
        "nodes": len(plan.nodes),
        "hosts": work.hosts,
        "messages": None if isinstance(work, Programs) else work.message_count,
        "rails": {host: rail + 1 for host, rail in experiment.rails_by_name(seed).items()},
        "other_rails": {
            host: [rail + 1 for rail in rails]
            for host, rails in experiment.other_rails_by_name(
                experiment.transports[0], seed
            ).items()
        },
        "rules": [rule for rule in text.documents(plan) if ":" not in str(rule["rule"])],
        "runs": len(experiment.seeds) * len(compared(experiment)[0].transports),
        "memory_bytes": memory.needed_bytes(experiment),
        "notes": experiment_run.notes(experiment),
    }
    if as_json:
        print(json.dumps(document, indent=1))
        return
    labels = ", ".join(transport.label for transport in experiment.transports)
    amount = units.format_count(work.message_count, "message")
    if isinstance(work, Programs):
        amount = units.format_count(len(work.commands), "program")
    print(f"{experiment.name}: {work.name}, {amount}")
    print(f"  over {labels}, on the {experiment.clock} clock")
    print(f"  {len(plan.nodes)} nodes, {len(plan.links)} links, {work.hosts} hosts take part")
    if isinstance(work, Programs):
        _describe_commands(work, [host.name for host in plan.plain_hosts])
    _describe_rails(document["rails"])
    for host, others in document["other_rails"].items():
        print(f"  {host}: rails {', '.join(map(str, others))}, too")
    written = [rule for rule in lines.rules(plan.faults) if ":" not in rule.name]
    for rule in written[:_MOST_RULES]:
        print(f"  fault {rule.on(plan)}")
    if len(written) > _MOST_RULES:
        print(f"  and {len(written) - _MOST_RULES} faults more")
    print(f"  {units.format_count(document['runs'], 'run')}, "
          f"about {units.format_bytes(document['memory_bytes'])} of memory")  # fmt: skip
    for note in document["notes"]:
        print(f"  {note}")


def _describe_commands(work: Programs, names: Sequence[str]) -> None:
    for host, command in work.commands.items():
        first, *more = command.run.strip().splitlines()
        after = "" if command.after is None else f" (after {names[command.after]})"
        print(f"  {names[host]} runs{after}: {first}{' ...' if more else ''}")


def _describe_rails(rails: Mapping[str, int]) -> None:
    for rail in sorted(set(rails.values())):
        hosts = [host for host, number in rails.items() if number == rail]
        print(f"  rail {rail}: {listed(hosts)}")


def _print_transitions(run: WorkloadRun) -> None:
    """Of queue pairs with a backup, with their times since the run began."""
    rows = sorted(run.transitions, key=lambda row: int(row["time_ns"]))
    steps = [row for row in rows if transitions.is_step(row)]
    for row in steps[:_MOST_STEPS]:
        print(f"  {run.name} {units.format_duration(row['time_ns'])} {transitions.line(row)}")
    if len(steps) > _MOST_STEPS:
        print(f"  {run.name}: {len(steps) - _MOST_STEPS} transitions more are in shift.parquet")


def _print(outcome: Outcome) -> None:
    rows = over_oracle.added([run.summary() for run in outcome.runs])
    names, lines = workload_table.lines(rows)
    run_table.show(names, lines)
    for note in (*footnotes(cell for line in lines for cell in line.cells), *outcome.notes):
        print(f"  {note}")
    for run in outcome.runs:
        for line in program_words.lines(run.name, run.facts.get("programs", {})):
            print(f"  {line}")
        _print_transitions(run)
    for run, row in zip(outcome.runs, rows, strict=True):
        _print_some(f"{run.name}: ", row["reasons"])
        _print_some(f"{run.name} not faithful: ", (row["fidelity"] or {}).get("reasons", ()))
    gates.show(outcome.expected)
    print(f"\n{outcome.directory}")


def _print_some(name: str, reasons: Sequence[str]) -> None:
    for reason in reasons[:_MOST_REASONS]:
        print(f"  {name}{reason}")
    if len(reasons) > _MOST_REASONS:
        print(f"  {name}and {len(reasons) - _MOST_REASONS} more, all in manifest.json")
