# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out a sweep: every run that has no row yet becomes one, wherever the work is done."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from softroce_lab import __version__, units
from softroce_lab.errors import RunError, UserError
from softroce_lab.experiment import code_version
from softroce_lab.experiment.figure_table import Row
from softroce_lab.experiment.forecast import memory
from softroce_lab.experiment.gates import expect
from softroce_lab.experiment.sweep import bounds, frozen, spec
from softroce_lab.experiment.sweep import pool as sweep_pool
from softroce_lab.experiment.sweep import rows as sweep_rows
from softroce_lab.experiment.sweep.pool import Pool, Work, carry_out, unfinished
from softroce_lab.experiment.sweep.rows import ERROR, NUMBER, Rows
from softroce_lab.experiment.sweep.spec import Combination, Sweep, Task
from softroce_lab.telemetry.rundir import RunDirectory, environment

State: TypeAlias = Literal["done", "interrupted", "failed"]
# --- Who does it -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Crew:
    """Who carries runs out, how many at a time, and why not more."""

    jobs: int
    reason: str | None = None
    scheduler: str | None = None
    in_place: bool = False


def crew_of(sweep: Sweep, options: Options, tasks: Sequence[Task]) -> Crew:
    """One run a core, or as many as are wanted, fit into memory, and are left.

    UserError if a run does not fit, or if several are wanted of those that cannot run together.
    """
    if options.scheduler is None:
        needed = {task.recipe for task in tasks}
        largest = max((each for each in sweep.combinations if each.recipe in needed), key=_needed)
        _check_fits(largest)
    if "real" in sweep.clocks:
        if options.scheduler is not None or (options.jobs or 1) > 1:
            what = "runs on the real clock would be in each other's way"
            hint = "they run on this machine, one after the other: no --jobs, no --scheduler"
            raise UserError(what, hint=hint)
        return Crew(1, "the real clock's runs go one after the other", in_place=True)
    if options.scheduler is not None:
        return Crew(options.jobs or 0, scheduler=options.scheduler)
    jobs = min(options.jobs or os.cpu_count() or 1, len(tasks))
    fitting = memory.fitting(spec.alone(largest.experiment))
    if fitting < jobs:
        need = units.format_bytes(_needed(largest))
        reason = f"a run{_with(largest)} needs {need} of memory: {fitting} at a time, not {jobs}"
        return Crew(fitting, reason)
    return Crew(jobs)


def _check_fits(combination: Combination) -> None:
    try:
        memory.check_fits(spec.alone(combination.experiment))
    except UserError as error:
        raise UserError(f"{error.what}{_with(combination)}", hint=error.hint) from None


def _needed(combination: Combination) -> int:
    return memory.needed_bytes(spec.alone(combination.experiment))


def _with(combination: Combination) -> str:
    return f" with {combination.title}" if combination.points else ""


def _pool(crew: Crew, jobs: int) -> AbstractContextManager[Pool]:
    if crew.scheduler is not None:
        from softroce_lab.experiment.sweep import cluster

        return cluster.cluster(crew.scheduler, crew.jobs)
    if crew.in_place:
        return contextlib.nullcontext(sweep_pool.OneByOne())
    return sweep_pool.processes(jobs)


# --- The whole -------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class Outcome:
    """How far a sweep came."""

    sweep: Sweep
    directory: Path
    tasks: list[Task]  # that were requested
    rows: list[Row]  # of those that have one, in their order
    kept: int  # rows that were there before
    crew: Crew

    def count(self, verdict: str) -> int:
        """Rows of this verdict."""
        return sum(row["verdict"] == verdict for row in self.rows)

    @property
    def axes(self) -> list[str]:
        """The names of what is varied."""
        return [axis.name for axis in self.sweep.axes]

    @property
    def table(self) -> Path:
        """The Parquet table."""
        return self.directory / f"{sweep_rows.TABLE}.parquet"

    @property
    def passed(self) -> bool:
        """Whether all were run, and passed."""
        return self.count("passed") == len(self.tasks)

    @property
    def expected(self) -> list[expect.Judged]:
        """The gates of the file, and whether they held."""
        return expect.judged(self.sweep.gates, self.rows, self.axes)

    @property
    def notes(self) -> list[str]:
        """Warnings about the links and the faults of any run."""
        return list(dict.fromkeys(note for row in self.rows for note in row.get("notes") or ()))

    @property
    def falls(self) -> list[str]:
        """From which values on a figure has fallen, if the sweep watches one."""
        watched = self.sweep.falls
        return [] if watched is None else watched.lines(self.axes, self.rows)

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        watched = self.sweep.falls
        shown = ("run", *self.axes, "transport", "seed", "verdict", "reasons")
        return {
            "name": self.sweep.name,
            "sweep_dir": str(self.directory),
            "table": str(self.table),
            "axes": {axis.name: [each.label for each in axis.points] for axis in self.sweep.axes},
            "runs": len(self.tasks),
            "done": len(self.rows),
            "kept": self.kept,
            "jobs": self.crew.jobs,
            "jobs_reason": self.crew.reason,
            **{verdict: self.count(verdict) for verdict in ("passed", "failed", "error")},
            "verdict": "passed" if self.passed else "failed",
            **(
                {"expect": [dataclasses.asdict(each) for each in self.expected]}
                if self.sweep.gates
                else {}
            ),
            "falls": [] if watched is None else watched.document(self.axes, self.rows),
            "notes": self.notes,
            "not_passed": [
                {key: row[key] for key in shown} for row in self.rows if row["verdict"] != "passed"
            ],
        }


class Reporter(Protocol):
    """Receives the progress of a sweep."""

    def say(self, text: str) -> None:
        """A warning for the user."""

    def begin(self, runs: int) -> None:
        """So many runs are to be done."""

    def done(self, task: Task, row: Row) -> None:
        """One is over."""


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """How a sweep is to be carried out."""

    under: Path = Path("sweeps")  # its directory, called like the sweep, lies there
    only: Sequence[str] = ()  # KEY=VALUE: these runs alone
    jobs: int | None = None  # at a time; None: one a core
    scheduler: str | None = None  # of a Dask cluster that does the work; None: this machine
    keep_runs: bool = False  # the run directories, too
    fresh: bool = False  # what is chosen is done anew, even if it was done before


def run(sweep: Sweep, options: Options, reporter: Reporter) -> Outcome:
    """Do what is left to do, and write the table. UserError, EnvironmentLackError, RunError.

    Runs that end badly are rows. However this ends, rows that were written are kept, and the next
    call goes on behind them.
    """
    tasks = sweep.tasks(code_version.fingerprint())
    chosen = spec.only(tasks, sweep, options.only)
    directory = options.under / sweep.name
    keep = str(directory / "runs") if options.keep_runs else None
    with contextlib.ExitStack() as stack:
        crew = crew_of(sweep, options, chosen)
        anew = {task.key for task in chosen} if options.fresh else ()
        rows = stack.enter_context(sweep_rows.opened(directory, without=anew))
        left = [task for task in chosen if not _is_done(rows, task, options)]
        outcome = Outcome(sweep, directory, chosen, [], len(chosen) - len(left), crew)
        _say(outcome, rows, tasks, left, reporter)
        frozen.write(RunDirectory(directory), sweep)
        state: State = "failed"
        try:
            reporter.begin(len(left))
            if left:
                pool = stack.enter_context(_pool(crew, min(crew.jobs, len(left))))
                outcome.crew = dataclasses.replace(crew, jobs=pool.slots)
                for task, row in carry_out(left, Work(keep), pool, unfinished):
                    rows.add(task.key, {**row, **_code()})
                    reporter.done(task, row)
            state = "done"
        except KeyboardInterrupt:
            state = "interrupted"
            raise
        finally:
            every = bounds.added(outcome.axes, sweep.by_labels, _rows(rows, tasks))
            numbers = {task.number for task in chosen}
            outcome.rows = [row for row in every if row[NUMBER] in numbers]
            try:
                _write(outcome, every, state)
            except RunError as error:
                count = units.format_count(len(every), "finished run")
                hint = f"{count} are kept in {rows.file}: make room, and repeat the command"
                raise RunError(error.what, hint=hint) from error
    return outcome


def _is_done(rows: Rows, task: Task, options: Options) -> bool:
    """Whether all is there that is wanted of it."""
    row = _result(rows, task)
    if row is None or not options.keep_runs:
        return row is not None
    return os.path.isdir(row.get("run_dir") or "")  # noqa: PTH112 - a Path's raises for some texts


def _result(rows: Rows, task: Task) -> Mapping[str, Any] | None:
    """Its row, if there is a result; what could not be run is tried again."""
    row = rows.get(task.key)
    return None if row is None or row["verdict"] == ERROR else row


def _say(
    outcome: Outcome, rows: Rows, tasks: Sequence[Task], left: Sequence[Task], reporter: Reporter
) -> None:
    if rows.damaged:
        what = units.format_count(rows.damaged, "line")
        reporter.say(f"{rows.file}: {what} without a whole row, passed over")
    if outcome.kept:
        runs = units.format_count(outcome.kept, "run")
        reporter.say(f"{runs} of {len(outcome.tasks)} are there already, in {outcome.directory}")
    if lost := sum(_result(rows, task) is not None for task in left):
        runs = units.format_count(lost, "run")
        reporter.say(f"{runs} of {len(outcome.tasks)} without a run directory, done anew")
    if stale := rows.beside({task.key for task in tasks}):
        what = units.format_count(stale, "row")
        reporter.say(f"the file, or the code, has changed: {what} of other runs are passed over")
    if outcome.crew.reason:
        reporter.say(outcome.crew.reason)


def _rows(rows: Rows, tasks: Sequence[Task]) -> list[Row]:
    found = ((task, rows.get(task.key)) for task in tasks)
    return [{**row, **task.values, NUMBER: task.number} for task, row in found if row is not None]


def _write(outcome: Outcome, rows: Sequence[Row], state: State) -> None:
    directory = RunDirectory(outcome.directory)
    sweep_rows.write_table(directory, outcome.axes, rows)
    about = {"file": outcome.sweep.file, **_code()}
    directory.manifest(state=state, **outcome.document(), environment=environment() | about)


@functools.cache
def _code() -> dict[str, str | None]:
    return {"version": __version__, "commit": code_version.commit()}
