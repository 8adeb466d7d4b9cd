# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs an experiment: every transport with every seed, on one clock, into one run directory.

Either clock's runner is imported when it is needed: the virtual one works on machines that have
nothing of what the real one takes, root included.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import resource
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from softroce_lab import units
from softroce_lab.errors import EnvironmentLackError, RunError
from softroce_lab.experiment import bounds, code_version, frozen, workload_record
from softroce_lab.experiment.capturing import (
    FILE,
    NOTHING,
    Wanted,
    capturing,
    comment,
    wall_clock_ns,
)
from softroce_lab.experiment.forecast import idle_rules, memory
from softroce_lab.experiment.forecast import notes as forecast
from softroce_lab.experiment.forecast.notes import LeftOut
from softroce_lab.experiment.gates import expect
from softroce_lab.experiment.hosts.settings import HostOptions
from softroce_lab.experiment.reporter import Progress, Reporter
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.transports import written
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.experiment.workload_run import WorkloadRun
from softroce_lab.faults.text import documents as fault_documents
from softroce_lab.sim import presets
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, Columns, RunDirectory, environment
from softroce_lab.workloads.programs import Programs

OneRun: TypeAlias = Callable[[Experiment, Transport, int, Progress, Wanted], WorkloadRun]
XdpMode: TypeAlias = Literal["auto", "native", "generic"]


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    experiment: Experiment
    directory: Path
    runs: list[WorkloadRun]  # their events are in the directory alone
    left_out: list[LeftOut] = dataclasses.field(default_factory=list)

    @property
    def passed(self) -> bool:
        return all(run.verdict == "passed" for run in self.runs)

    @property
    def expected(self) -> list[expect.Judged]:
        rows = bounds.added([run.summary() for run in self.runs])
        return expect.judged(expect.gates(self.experiment.raw.expect), rows)

    @property
    def faithful(self) -> bool:
        judged = [run.fidelity["verdict"] for run in self.runs if run.fidelity]
        return all(verdict == "faithful" for verdict in judged)

    @property
    def idle_rules(self) -> list[str]:
        return idle_rules.find_in_all([run.facts["idle_rules"] for run in self.runs])

    @property
    def notes(self) -> list[str]:
        plan = self.experiment.plan(self.experiment.seeds[0])
        links = (run.links for run in self.runs)
        left_out = [each.note for each in self.left_out]
        idle = idle_rules.notes(self.idle_rules, plan, links)
        return [*left_out, *forecast.notes(self.experiment), *idle]

    def document(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "run_dir": str(self.directory),
            "name": self.experiment.name,
            "clock": self.experiment.clock,
            "verdict": "passed" if self.passed else "failed",
            "notes": self.notes,
            "idle_rules": self.idle_rules,
            "left_out": [each.document() for each in self.left_out],
            **_gates(self.expected),
            "runs": bounds.added([run.document() for run in self.runs]),
        }


def _gates(judged: Sequence[expect.Judged]) -> dict[str, Any]:
    return {"expect": [dataclasses.asdict(each) for each in judged]} if judged else {}


class BrokenOffError(RunError):
    """The experiment ended early; what was found until then is in `outcome`."""

    def __init__(self, error: RunError, outcome: Outcome) -> None:
        super().__init__(error.what, hint=error.hint)
        self.outcome = outcome


def run(
    experiment: Experiment,
    reporter: Reporter,
    *,
    under: Path = Path("runs"),
    mode: XdpMode = "auto",
    capture: Wanted = NOTHING,
    hosts: HostOptions = HostOptions(),  # noqa: B008 - frozen
) -> Outcome:
    """Do all runs and write them down. UserError, EnvironmentLackError, RunError.

    A transport that rules cannot hit does not run if others do, and is named in the outcome.
    What is captured lies in the run directory, a file a run. `mode` and `hosts` are of the real
    clock. A run that ends badly is a verdict, not an exception.
    """
    check(experiment, capture)
    if experiment.clock == "real" and os.geteuid() != 0:
        hint = "run it as root, or with sudo; --clock virtual needs neither"
        raise EnvironmentLackError("the rights of root", hint=hint)
    directory = RunDirectory.create(experiment.name, under=under)
    whole = experiment
    experiment, left_out = forecast.compared(experiment)
    reported: dict[str, Any] = {"left_out": [each.document() for each in left_out]}
    about = environment() | {"commit": code_version.commit(), "file": experiment.file}
    directory.manifest(state="running", **_facts(experiment) | reported, environment=about)
    for note in (*(each.note for each in left_out), *forecast.pace_notes(experiment)):
        reporter.say(note)
    runs: list[WorkloadRun] = []
    try:
        frozen.write(directory, whole)
        with contextlib.ExitStack() as tables:
            add = {name: tables.enter_context(directory.growing_table(name)) for name in _GROWING}
            done = _Runs(experiment, reporter, directory.inside, capture, mode, hosts)
            # One at a time: the variable of a loop would hold a run while the next one is made.
            runs.extend(map(functools.partial(_without_rows, add), done))
        _write(directory, runs, about)
        outcome = Outcome(experiment, directory.path, runs, left_out)
        verdict = "passed" if outcome.passed else "failed"
        directory.manifest(
            state="done", verdict=verdict, notes=outcome.notes, **_gates(outcome.expected)
        )
    except BaseException as error:
        _end_early(directory, runs, about, error, reporter, experiment)
        if runs and isinstance(error, RunError):
            outcome = Outcome(experiment, directory.path, runs, left_out)
            raise BrokenOffError(error, outcome) from error
        raise
    return outcome


def _end_early(
    directory: RunDirectory,
    runs: list[WorkloadRun],
    about: dict[str, Any],
    error: BaseException,
    reporter: Reporter,
    experiment: Experiment,
) -> None:
    """Write down why, and what was found until then, as far as there is room."""
    state = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
    with contextlib.suppress(RunError):
        directory.manifest(state=state, error=str(error) or type(error).__name__)
        if runs:
            _write(directory, runs, about)
            count = len(experiment.seeds) * len(experiment.transports)
            reporter.say(f"{len(runs)} of {count} runs are done, and kept in {directory.path}")
        elif state == "interrupted":
            directory.withdraw()
            reporter.say(f"no run is done: {directory.path} has nothing but its manifest")


def check(experiment: Experiment, capture: Wanted = NOTHING) -> None:
    if experiment.clock == "real":
        refuse_what_is_simulated(experiment)
    capture.links(experiment.plan(experiment.seeds[0]), _hosts(experiment, experiment.seeds[0]))
    memory.check_fits(experiment)


notes = forecast.notes

_GROWING: Mapping[str, Callable[[WorkloadRun], Iterator[Columns]]] = {
    "events": workload_record.events,
    "recovery": workload_record.recoveries,
    "samples": workload_record.samples,
}
"""Tables that are written run by run."""


def _without_rows(add: Mapping[str, Callable[[Columns], None]], run: WorkloadRun) -> WorkloadRun:
    """The run, its rows of these tables written: there may be millions, which no other needs."""
    for name, rows in _GROWING.items():
        for part in rows(run):
            add[name](part)
    return dataclasses.replace(run, events={}, recoveries=(), samples=None)


def _write(directory: RunDirectory, runs: list[WorkloadRun], about: dict[str, Any]) -> None:
    workload_record.write(directory, runs)
    costs = {run.name: dict(run.cost) for run in runs}
    figures = bounds.added([_figures(run) for run in runs])
    directory.manifest(runs=figures, environment=about | {"costs": costs})


def refuse_what_is_simulated(experiment: Experiment) -> None:
    """UserError for parts of a file that the real clock does not support."""
    raw = experiment.raw
    asked = {
        "rnic": (raw.rnic or presets.IDEAL) != presets.IDEAL,
        "stalls": bool(raw.stalls),
        "message_slots": raw.message_slots is not None,
        "blackout": "blackout" in raw.model_fields_set,  # its default is what hosts have there
    }
    for key, wanted in asked.items():
        if wanted:
            raise experiment.source.error(
                (key,), f"{key}: the virtual clock alone has that", hint="leave it out", at_key=True
            )
    for transport in experiment.used_transports:
        if transport.entry.virtual_only:
            what, hint = written.virtual_alone(transport), "clock: virtual, or leave it out"
            raise experiment.source.error(experiment.place_of(transport), what, hint=hint)


@dataclasses.dataclass(frozen=True, slots=True)
class _Runs:
    experiment: Experiment
    reporter: Reporter
    directory: Path  # for captures
    capture: Wanted
    mode: XdpMode  # of the real clock
    hosts: HostOptions  # of the real clock

    def __iter__(self) -> Iterator[WorkloadRun]:
        """Seed by seed, so that a lab that has to come up for a seed serves all transports."""
        for seed in self.experiment.seeds:
            with self._on_clock(seed) as one_run:
                for transport in self.experiment.transports:
                    yield self._reported(one_run, transport, seed)

    def _reported(self, one_run: OneRun, transport: Transport, seed: int) -> WorkloadRun:
        """A run with progress for the reporter; records its cost and transport."""
        experiment, reporter, work = self.experiment, self.reporter, self.experiment.workload(seed)
        title = transport.label
        if len(experiment.seeds) > 1:
            title += f", seed {seed}"
        progress: Progress = lambda _: None  # noqa: E731 - programs do not show how far they are
        if isinstance(work, Programs):
            reporter.say(f"{title}: {units.format_count(len(work.commands), 'program')}")
        else:
            progress = reporter.run(title, work.message_count)
        name = FILE
        if len(experiment.seeds) * len(experiment.transports) > 1:
            name = f"trace-{urllib.parse.quote(transport.label, safe='+')}-{seed}.pcapng"
        wanted = dataclasses.replace(self.capture, path=self.directory / name)
        before = _cpu_s()
        found = one_run(experiment, transport, seed, progress, wanted)
        cost = {"cpu_s": round(_cpu_s() - before, 3), **found.cost}
        progress(work.message_count)
        if capture := found.facts.get("capture"):
            reporter.say(f"{capture['captured']:,} packets captured: {capture['file']}")
        own: dict[str, Any] = {"framing": transport.frames}
        if transport.set_knobs:
            own["knobs"] = dict(transport.set_knobs)
        return dataclasses.replace(found, cost=cost, facts={**own, **found.facts})

    @contextlib.contextmanager
    def _on_clock(self, seed: int) -> Iterator[OneRun]:
        if self.experiment.clock == "virtual":
            from softroce_lab.experiment import virtual

            yield functools.partial(virtual.run, with_acts=True)
            return
        from softroce_lab.experiment import real
        from softroce_lab.experiment.hosts import programs
        from softroce_lab.fabric import lab as fabric

        def one_run(
            experiment: Experiment, transport: Transport, seed: int, progress: Progress,
            wanted: Wanted,
        ) -> WorkloadRun:  # fmt: skip
            with capturing(lab, wanted, _hosts(experiment, seed)) as capture:
                if isinstance(experiment.workload(seed), Programs):
                    found = programs.run(experiment, transport, seed, lab)
                else:
                    found = real.run(experiment, transport, seed, progress, lab, self.hosts)
            if capture is None:
                return found
            if "workload_begun_ns" in found.facts:
                begun_ns = found.facts["begun_monotonic_ns"] + found.facts["workload_begun_ns"]
                clock_ns = wall_clock_ns(begun_ns)
                failed = comment(wanted.path, found, lab.plan, clock_ns)
                found = dataclasses.replace(found, facts={**found.facts, **failed})
            return found.with_capture(capture)

        plan = self.experiment.plan(seed)
        with fabric.owned(plan, mode=self.mode, say=self.reporter.say) as lab:
            yield one_run


def _cpu_s() -> float:
    """User and system time of this process and of its children that are over."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in spent)


def _hosts(experiment: Experiment, seed: int) -> list[str]:
    hosts = experiment.plan(seed).plain_hosts
    return [hosts[rank].name for rank in experiment.workload(seed).ranks]


def _facts(experiment: Experiment) -> dict[str, Any]:
    plan = experiment.plan(experiment.seeds[0])
    keyed = "identity" if all(fault.key == "identity" for fault in plan.faults) else "index"
    return {
        "name": experiment.name,
        "clock": experiment.clock,
        "grade": "virtual" if experiment.clock == "virtual" else keyed,
        "seeds": list(experiment.seeds),
        "topology": experiment.topology,
        "topology_hash": plan.digest,
        "faults": fault_documents(plan),
        "hosts": [host.name for host in plan.plain_hosts],
        "notes": forecast.notes(experiment),
        "experiment": experiment.document(),
    }


def _figures(run: WorkloadRun) -> dict[str, Any]:
    return {
        **run.summary(),
        "run": run.name,
        "counters": {host: dict(counters) for host, counters in run.counters.items()},
        "policies": dict(run.policies),
        **run.facts,
    }
