# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab run` of an experiment on one clock, and the table that compares its transports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from softroce_lab import units, writable
from softroce_lab.cli import tables
from softroce_lab.cli.options import print_json
from softroce_lab.cli.running import gates
from softroce_lab.cli.screen import Screen
from softroce_lab.errors import ExitCode
from softroce_lab.experiment import bounds, spec, workload_table
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment.capturing import Wanted
from softroce_lab.experiment.forecast import memory
from softroce_lab.experiment.forecast.notes import compared
from softroce_lab.experiment.gates import fit
from softroce_lab.experiment.gates.expect import check_transports
from softroce_lab.experiment.hosts import program_words
from softroce_lab.experiment.reporter import Progress
from softroce_lab.experiment.run import BrokenOffError, Outcome
from softroce_lab.experiment.spec import Experiment, Overrides
from softroce_lab.experiment.workload_run import WorkloadRun
from softroce_lab.faults import lines, text
from softroce_lab.inputs.validation import listed
from softroce_lab.statistics import footnotes
from softroce_lab.telemetry import transitions
from softroce_lab.workloads.programs import Programs

_MOST_REASONS = 4
_MOST_STEPS = 16  # transitions of queue pairs with a backup, a run
_MOST_RULES = 12  # that --dry-run lists


class RunScreen(Screen):
    """Progress in messages."""

    def __init__(self, *, quiet: bool) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        super().__init__(*columns, TextColumn("messages"), TimeRemainingColumn(), quiet=quiet)

    def run(self, name: str, messages: int) -> Progress:
        """A run begins."""
        return self.bar(name, messages, units.format_count(messages, "message"))


class Running(NamedTuple):
    """How an experiment is run, and what is printed."""

    under: Path  # parent of the run directory
    junit: Path | None
    xdp: str
    require_faithful: bool
    dry_run: bool
    as_json: bool
    quiet: bool


def load(path: Path, overrides: Overrides, transports: Sequence[str] | None) -> Experiment:
    """The experiment as the options have it. UserError."""
    loaded = whole = spec.load(path, overrides)
    if transports:
        loaded = spec.with_transports(loaded, transports)
    check_transports(whole.source, [each.label for each in (*whole.transports, *loaded.transports)])
    fit.check(whole.source, [whole, loaded])
    return loaded


def run(loaded: Experiment, wanted: Wanted, how: Running) -> None:
    """Run it and print its figures. Exits with 1 if a run or a gate fails."""
    if how.junit is not None:
        writable.check(how.junit, "--junit FILE")
    if how.dry_run:
        experiment_run.check(loaded, wanted)
        _describe(loaded, as_json=how.as_json)
        return
    try:
        with RunScreen(quiet=how.quiet) as screen:
            outcome = experiment_run.run(
                loaded, screen, under=how.under, mode=how.xdp, capture=wanted
            )
    except BrokenOffError as error:
        _show(error.outcome, as_json=how.as_json, error=error)
        raise
    _show(outcome, as_json=how.as_json)
    judged = outcome.expected
    gates.write_junit(how.junit, loaded.name, [run.summary() for run in outcome.runs], judged)
    faithful = outcome.faithful or not how.require_faithful
    if not (outcome.passed and gates.held(judged) and faithful):
        raise typer.Exit(ExitCode.FAILED)


def _show(outcome: Outcome, *, as_json: bool, error: BrokenOffError | None = None) -> None:
    """What was found; with `error`, until then."""
    if as_json:
        failed = {} if error is None else {"verdict": "failed", "error": error.what}
        print_json(outcome.document() | failed)
    else:
        _print(outcome)


def _describe(experiment: Experiment, *, as_json: bool) -> None:
    seed = experiment.seeds[0]
    plan, work = experiment.plan(seed), experiment.workload(seed)
    rails = experiment.rails_used(experiment.transports[0], seed)
    document = {
        **experiment.document(),
        "nodes": len(plan.nodes),
        "hosts": work.hosts,
        "messages": None if isinstance(work, Programs) else work.message_count,
        "rails": {host: own + 1 for host, (own, *_) in rails.items() if own},
        "other_rails": {
            host: [rail + 1 for rail in others] for host, (_, *others) in rails.items() if others
        },
        "rules": [rule for rule in text.documents(plan) if ":" not in str(rule["rule"])],
        "runs": len(experiment.seeds) * len(compared(experiment)[0].transports),
        "memory_bytes": memory.needed_bytes(experiment),
        "notes": experiment_run.notes(experiment),
    }
    if as_json:
        print_json(document)
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
    rows = bounds.added([run.summary() for run in outcome.runs])
    names, lines = workload_table.lines(rows)
    tables.show_figures(names, lines)
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
