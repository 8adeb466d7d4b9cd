# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab run` of a sweep: many experiments, in parallel, into one table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from softroce_lab import units, writable
from softroce_lab.cli.options import print_json
from softroce_lab.cli.running import gates
from softroce_lab.cli.screen import Counting
from softroce_lab.errors import ExitCode, RunError
from softroce_lab.experiment.figure_table import Row
from softroce_lab.experiment.forecast import memory
from softroce_lab.experiment.sweep import campaign
from softroce_lab.experiment.sweep import spec as sweep_spec
from softroce_lab.experiment.sweep import table as sweep_table
from softroce_lab.experiment.sweep.campaign import Options, Outcome
from softroce_lab.experiment.sweep.spec import Sweep, Task
from softroce_lab.telemetry.rundir import give_to_user

_MOST_LINES = 40  # of the table on the terminal
_MOST_REASONS = 8
_MOST_NOTES = 8


class SweepScreen(Counting):
    """The progress of a sweep."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__("sweep", "runs", quiet=quiet)
        self._bad = 0

    def done(self, _: Task, row: Row) -> None:
        """A run is over."""
        self._bad += row["verdict"] != "passed"
        self.add(f"{self._bad} not passed" if self._bad else "")


def run(
    path: Path,
    options: Options,
    table: Path | None,
    junit: Path | None,
    *,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run it, or what is left of it, and print its table. Exits with 1 if a run or gate fails."""
    loaded = sweep_spec.load(path)
    for option, file in {"--table FILE": table, "--junit FILE": junit}.items():
        if file is not None:
            writable.check(file, option)
    if dry_run:
        tasks = sweep_spec.only(loaded.tasks(""), loaded, options.only)
        _describe(loaded, tasks, as_json=as_json)
        campaign.crew_of(loaded, options, tasks)  # what does not fit is refused
        return
    with SweepScreen(quiet=quiet) as screen:
        try:
            outcome = campaign.run(loaded, options, screen)
        except KeyboardInterrupt:
            screen.say(f"what is done is kept in {options.under / loaded.name}; "
                       "the same command goes on from there")  # fmt: skip
            raise
    if table is not None:
        _write(table, sweep_table.document(loaded, outcome.rows))
    if as_json:
        print_json(outcome.document())
    else:
        _print(outcome, table)
    judged, axes = outcome.expected, [axis.name for axis in loaded.axes]
    gates.write_junit(junit, loaded.name, outcome.rows, judged, axes)
    if not (outcome.passed and gates.held(judged)):
        raise typer.Exit(ExitCode.FAILED)


def _describe(sweep: Sweep, tasks: Sequence[Task], *, as_json: bool) -> None:
    chosen = {task.recipe for task in tasks}
    runs = (
        sweep_spec.alone(each.experiment) for each in sweep.combinations if each.recipe in chosen
    )
    needed = max(map(memory.needed_bytes, runs))
    axes = {
        axis.name: list(dict.fromkeys(task.labels[axis.name] for task in tasks))
        for axis in sweep.axes
    }
    transports = list(dict.fromkeys(task.transport.label for task in tasks))
    seeds = list(dict.fromkeys(task.seed for task in tasks))
    if as_json:
        document = {
            "name": sweep.name, "axes": axes, "transports": transports, "seeds": seeds,
            "runs": len(tasks), "memory_bytes": needed,
        }  # fmt: skip
        print_json(document)
        return
    print(f"{sweep.name}: {units.format_count(len(tasks), 'run')}")
    for axis, labels in axes.items():
        print(f"  {axis}: {', '.join(labels)}")
    print(f"  over {', '.join(transports)}; {units.format_count(len(seeds), 'seed')}")
    print(f"  at most {units.format_bytes(needed)} of memory a run")


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text)
        give_to_user(file)
    except OSError as error:
        raise RunError(f"cannot write {file}: {error.strerror}", hint="--table FILE") from None


def _print(outcome: Outcome, written: Path | None) -> None:
    axes = [axis.name for axis in outcome.sweep.axes]
    text = "\n".join(sweep_table.sections(axes, outcome.rows))
    lines = text.splitlines()
    if len(lines) <= _MOST_LINES:
        print(text)
    elif written is not None:
        print(f"{len(lines):,} lines of a table: {written}")
    else:
        print("\n".join(lines[:_MOST_LINES]))
        print(f"{len(lines) - _MOST_LINES:,} more lines of the table are not shown.")
        print("  hint: the same command with --table FILE writes them, and runs nothing anew")
    notes = outcome.notes[:_MOST_NOTES]
    for note in (*outcome.falls, *sweep_table.samples(outcome.rows), *notes):
        print(f"  {note}")
    bad = [row for row in outcome.rows if row["verdict"] != "passed"]
    for row in bad[:_MOST_REASONS]:
        where = f"run {row['run']}, {row['transport']}, seed {row['seed']}"
        print(f"  {where}: {row['reasons'][0]}")
    if len(bad) > _MOST_REASONS:
        print(f"  and {len(bad) - _MOST_REASONS} more, all in the table")
    gates.show(outcome.expected)
    passed, failed, error = map(outcome.count, ("passed", "failed", "error"))
    runs = units.format_count(len(outcome.rows), "run")
    print(f"{runs}: {passed} passed, {failed} failed, {error} without a result")
    print(outcome.table)
