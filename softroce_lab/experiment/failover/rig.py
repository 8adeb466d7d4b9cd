# SPDX-License-Identifier: GPL-2.0-or-later
"""A NIC dies in the middle of a training: the job without SHIFT and with it, on either clock."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from softroce_lab import topology
from softroce_lab.errors import LabError, RunError, UserError
from softroce_lab.experiment import demo, real, workload_record
from softroce_lab.experiment.failover import ring_job
from softroce_lab.experiment.failover.ring_job import Job, MakeQp, Member
from softroce_lab.experiment.forecast import assumed_links
from softroce_lab.experiment.hosts.rnics import opened
from softroce_lab.experiment.messages import MESSAGE
from softroce_lab.experiment.observation import Observation
from softroce_lab.experiment.workload_run import WorkloadRun
from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric.lab import Lab
from softroce_lab.faults import live, resolve
from softroce_lab.plan.plan import Node, Plan
from softroce_lab.sim.fabric import SimFabric
from softroce_lab.sim.presets import simulated_host
from softroce_lab.telemetry.links import simulated
from softroce_lab.telemetry.rundir import RUNS, SCHEMA_VERSION, RunDirectory, environment
from softroce_lab.transports.shift import (
    Backup,
    Event,
    LocalStore,
    Pump,
    Settings,
    ShiftQP,
    StoreServer,
    TcpStore,
)
from softroce_lab.verbs import GID, QP, Context

_PATH_MTU = 1024


@dataclasses.dataclass(frozen=True)
class Options:
    """What the user may choose; `dies_at` and `repaired_at` are steps, None: never."""

    topology: str = "dual-rail"
    name: str = "failover"
    hosts: int | None = None
    steps: int = 60
    model_bytes: int = 1 << 20
    dies_at: int | None = None  # by default a third of the steps
    repaired_at: int | None = None  # by default two thirds
    into_step_s: float | None = None  # the NIC dies so long after the step began; None: soon
    seed: int = 1
    mode: fabric.Mode = "auto"

    @property
    def death(self) -> tuple[int, int]:
        dies = self.steps // 3 if self.dies_at is None else self.dies_at
        back = 2 * self.steps // 3 if self.repaired_at is None else self.repaired_at
        return dies, back


@dataclasses.dataclass(frozen=True)
class Moment:
    """A transition at a host; `at_ns` since the NIC died."""

    at_ns: int
    host: str
    event: Event
    peer: str = ""  # the host at the other end


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One job. `gap_ns`: from the NIC's death until all hosts have finished that step."""

    shift: bool
    steps: int
    steps_done: int
    errors: tuple[str, ...]
    step_p50_ns: int | None
    gap_ns: int | None
    detection_ns: int | None  # the death until the first QP fails
    failover_ns: int | None  # first failed to first good completion
    moments: tuple[Moment, ...]
    notifications: int
    expected: int
    in_order: bool
    checksums: tuple[str, ...]
    reference: str
    died_ns: int = 0  # since the job began
    end_ns: int = 0  # likewise
    links: tuple[Mapping[str, Any], ...] = ()  # figures of each directed link
    events: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # columns of events.parquet
    fidelity: Mapping[str, Any] | None = None  # of the real clock

    @property
    def right(self) -> bool:
        """All steps done, each notification once and in order, the model right to the last bit."""
        same = set(self.checksums) == {self.reference}
        return not self.errors and self.in_order and self.notifications == self.expected and same

    def total(self, name: str) -> int:
        """Of all transitions: `consumed`, `resubmitted` or `receives`."""
        return sum(getattr(each.event, name) for each in self.moments)

    def document(self) -> dict[str, Any]:
        made = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("moments", "errors", "checksums", "links", "events")
        }
        events = [
            {"at_ns": each.at_ns, "host": each.host, "peer": each.peer}
            | {k: v for k, v in dataclasses.asdict(each.event).items() if k != "at_ns"}
            for each in self.moments
        ]
        return made | {
            "errors": list(self.errors),
            "checksums": list(self.checksums),
            "right": self.right,
            "resubmitted": self.total("resubmitted"),
            "consumed": self.total("consumed"),
            "events": events,
        }


def document(outcomes: list[Outcome]) -> dict[str, Any]:
    jobs = {"shift" if each.shift else "plain": each.document() for each in outcomes}
    return {"schema_version": SCHEMA_VERSION, "jobs": jobs, "environment": environment()}


def plan_of(options: Options) -> tuple[Plan, tuple[Node, ...]]:
    """The fabric, and the hosts that take part. UserError: one of them has no second rail."""
    plan = topology.load(options.topology, name=options.name)
    hosts = plan.plain_hosts
    if options.hosts is not None:
        if not 2 <= options.hosts <= len(hosts):
            hint = f"{plan.name} has {len(hosts)}; two at least"
            raise UserError(f"{options.hosts} hosts", hint=hint)
        hosts = hosts[: options.hosts]
    for host in hosts:
        if len(host.ports) < 2:
            raise UserError(
                f"the host {host.name} has one rail: its connections cannot have a backup",
                hint="--topology dual-rail, or another whose hosts have several ports",
            )
    dies, back = options.death
    if not 0 <= dies < back <= options.steps:
        raise UserError(
            f"a NIC that dies in step {dies} and is back in step {back} of {options.steps}",
            hint="0 <= dies < back <= steps",
        )
    return plan, hosts


def job_of(options: Options, hosts: int) -> Job:
    quantum = hosts * ring_job.PIECES
    values = max(options.model_bytes // 4 // quantum, 1) * quantum
    return Job(hosts, options.steps, values, options.seed)


def run(
    options: Options, clock: demo.Clock, say: Callable[[str], None]
) -> tuple[list[Outcome], str]:
    """Both jobs, and the clock of them, `real` or `virtual`; as `lab demo` chooses it.

    UserError, EnvironmentLackError (if the real clock, or a way of XDP, was insisted on), RunError.
    """
    plan_of(options)  # refuses what works on no clock

    def on(clock: demo.OneClock) -> tuple[list[Outcome], str]:
        return run_on(clock, options, say), clock

    return demo.on_clock(clock, on, demo.of_xdp(options.mode), say)


def run_on(
    clock: demo.OneClock, options: Options, say: Callable[[str], None] = lambda _: None
) -> list[Outcome]:
    """The job without SHIFT and with it. If there is a lab, it is gone afterwards."""
    plan, hosts = plan_of(options)
    job = job_of(options, len(hosts))
    reference, outcomes = ring_job.reference(job), []
    with ExitStack() as stack:
        lab = None
        if clock == "real":
            lab = stack.enter_context(fabric.owned(plan, mode=options.mode, say=say))
        for shift in (False, True):
            say(f"the job {'with' if shift else 'without'} SHIFT")
            made: Run = VirtualRun(plan, hosts, job, options, reference)
            if lab is not None:
                made = _RealRun(lab, hosts, job, options, reference)
            outcomes.append(made.run(shift=shift))
    return outcomes


class Run:
    def __init__(self, hosts: tuple[Node, ...], job: Job, options: Options, reference: str) -> None:
        self.hosts, self.job, self.options = hosts, job, options
        self.reference = reference
        self.victim = f"{hosts[0].name}:{hosts[0].ports[0].name}"
        self.events: list[tuple[int, str, Event]] = []
        self.began_ns = 0
        self.died_ns: int | None = None

    def run(self, *, shift: bool) -> Outcome:
        """RunError: the job was over, or had stopped, before the NIC died."""
        raise NotImplementedError

    def wanted(self, word: str) -> Callable[[Plan], Plan]:
        impairments = live.parse_impairments([word])
        return lambda plan: live.set_on(plan, resolve.links_of(plan, self.victim), impairments)

    def connect(self, members: list[Member], stopping: Callable[[], bool]) -> None:
        for rank, member in enumerate(members):
            member.connect(members[rank - 1], members[(rank + 1) % len(members)])
            member.stopping = stopping

    def outcome(self, members: list[Member], end_ns: int, *, shift: bool) -> Outcome:
        """RunError: the job was over, or had stopped, before the NIC died."""
        died_ns, (dies, _) = self.died_ns, self.options.death
        if died_ns is None:
            errors = [each.error for each in members if each.error is not None]
            if errors:
                raise RunError(
                    f"the job stopped before the NIC died: {errors[0]}",
                    hint="a busy machine's engines stand still; once more, with less other load",
                )
            raise RunError("the job was over before the NIC died", hint="more --steps")
        done = min(len(each.step_ends_ns) for each in members)
        ends = [max(each.step_ends_ns[n] for each in members) for n in range(done)]
        lengths = sorted(after - before for before, after in itertools.pairwise(ends))
        failed_ns = min(
            (at for at, _, e in self.events if e.why == "retries exceeded" and at >= died_ns),
            default=None,
        )
        return Outcome(
            shift=shift,
            steps=self.job.steps,
            steps_done=done,
            errors=tuple(each.error for each in members if each.error is not None),
            step_p50_ns=lengths[len(lengths) // 2] if lengths else None,
            gap_ns=min((end - died_ns for end in ends[dies:] if end > died_ns), default=None),
            detection_ns=None if failed_ns is None else failed_ns - died_ns,
            failover_ns=None if failed_ns is None else self._first_good(members, failed_ns),
            moments=tuple(
                Moment(at - died_ns, host, e, self._name_of(e.peer_gid))
                for at, host, e in self.events
            ),
            notifications=sum(len(each.notified) for each in members),
            expected=self.job.steps * self.job.rounds * self.job.hosts,
            in_order=all(each.in_order() for each in members),
            checksums=tuple(ring_job.checksum(each.model) for each in members),
            reference=self.reference,
            died_ns=died_ns - self.began_ns,
            end_ns=end_ns - self.began_ns,
        )

    def _first_good(self, members: list[Member], failed_ns: int) -> int | None:
        """The first completion behind the failure at a host whose QP failed."""
        named = {host for _, host, e in self.events if e.why == "retries exceeded"}
        at = [
            next((t for t in each.good_ns if t > failed_ns), None)
            for each in members
            if self.hosts[each.rank].name in named
        ]
        return min((t - failed_ns for t in at if t is not None), default=None)

    def _name_of(self, gid: str) -> str:
        """The host whose first rail has this GID."""
        names = {
            str(GID.of_address(int(ipaddress.ip_address(str(host.address))))): host.name
            for host in self.hosts
        }
        return names.get(gid, gid)


class _RealRun(Run):
    """Over a lab that is up: a thread for each host."""

    into_step_s = 0.002
    settings = Settings(probe_interval_ns=20_000_000, most_probe_interval_ns=500_000_000)

    def __init__(
        self, lab: Lab, hosts: tuple[Node, ...], job: Job, options: Options, reference: str
    ) -> None:
        super().__init__(hosts, job, options, reference)
        self.lab = lab
        self._dies, self._returns = threading.Event(), threading.Event()
        self._over, self._stopping = threading.Event(), threading.Event()

    def run(self, *, shift: bool) -> Outcome:
        observation = Observation(self.lab)
        with ExitStack() as stack:
            outcome = self._run(self._members(stack, shift=shift), shift=shift)
        observed = observation.end({}, striped=False, hosts=[host.name for host in self.hosts])
        return dataclasses.replace(
            outcome,
            links=tuple(dataclasses.asdict(link) for link in observed.links),
            events=real.events(observed, {}, self.began_ns - observed.epoch_ns),
            fidelity=observed.fidelity.document(),
        )

    def _run(self, members: list[Member], *, shift: bool) -> Outcome:
        self.connect(members, self._stopping.is_set)
        switch = threading.Thread(target=self._switch, daemon=True)
        switch.start()
        threads = [threading.Thread(target=self._work, args=[m], daemon=True) for m in members]
        self.began_ns = time.monotonic_ns()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        end_ns = time.monotonic_ns()
        for event in (self._over, self._dies, self._returns):
            event.set()
        switch.join(30)
        self._set("up")
        return self.outcome(members, end_ns, shift=shift)

    def _members(self, stack: ExitStack, *, shift: bool) -> list[Member]:
        server = stack.enter_context(StoreServer()) if shift else None
        members = []
        for rank, host in enumerate(self.hosts):
            context = stack.enter_context(opened(self.lab, host.name, path_mtu=_PATH_MTU))
            make = QP if server is None else self._shifting(stack, host, context, server)
            members.append(Member(self.job, rank, context, make))
        return members

    def _shifting(
        self, stack: ExitStack, host: Node, context: Context, server: StoreServer
    ) -> MakeQp:
        rail = host.ports[1].name
        other = stack.enter_context(opened(self.lab, host.name, path_mtu=_PATH_MTU, rail=rail))
        store = stack.enter_context(contextlib.closing(TcpStore(*server.address)))
        backup = Backup(context, other, store, self.settings)
        backup.on_event = lambda event: self.events.append((time.monotonic_ns(), host.name, event))
        stack.enter_context(Pump(backup))
        return lambda pd, init: ShiftQP(pd, init, backup=backup)

    def _work(self, member: Member) -> None:
        try:
            member.run(self._begins)
        except LabError as error:
            member.error = f"{self.hosts[member.rank].name}: {error}"
            self._stopping.set()

    def _begins(self, rank: int, step: int) -> None:
        for at, event in zip(self.options.death, (self._dies, self._returns), strict=True):
            if rank == 0 and step == at:
                event.set()

    def _switch(self) -> None:
        self._dies.wait()
        if not self._over.is_set():
            into_s = self.options.into_step_s
            time.sleep(self.into_step_s if into_s is None else into_s)
            self._set("down")
            self.died_ns = time.monotonic_ns()
        self._returns.wait()
        if not self._over.is_set():
            self._set("up")

    def _set(self, word: str) -> None:
        self.lab.faults.change(self.wanted(word), time.monotonic_ns)


class VirtualRun(Run):
    """Over a simulated fabric: hosts that wait look again after a while."""

    into_step_s = 20e-6
    timeout, retries = 8, 3  # 1.05 ms, up to four times it; tried four times
    look_ns = 2_000
    settings = Settings(probe_interval_ns=1_000_000, most_probe_interval_ns=16_000_000)

    def __init__(
        self, plan: Plan, hosts: tuple[Node, ...], job: Job, options: Options, reference: str
    ) -> None:
        job = dataclasses.replace(job, timeout=self.timeout, retry_cnt=self.retries)
        super().__init__(hosts, job, options, reference)
        host = simulated_host(path_mtu=_PATH_MTU, carries_payload=True)
        self.fabric = SimFabric(assumed_links.shaped(plan), host)
        self._backups: list[Backup] = []
        self._due: list[tuple[int, str]] = []  # when the NIC goes down, or up
        self._is_over = False
        self._faults = list(self.fabric.plan.faults)  # all that were set at some time

    def run(self, *, shift: bool) -> Outcome:
        members = self._members(shift=shift)
        self.connect(members, lambda: self._is_over)
        running = {each.rank: each.steps(self._begins) for each in members}
        while running:
            for rank in list(running):
                if not self._goes_on(members[rank], running[rank]):
                    del running[rank]
            self._advance()
        outcome = self.outcome(members, self.fabric.now_ns, shift=shift)
        names = list(self.fabric.link_names.values())
        return dataclasses.replace(
            outcome,
            links=tuple(map(simulated, self.fabric.links())),
            events=workload_record.injected(self.fabric.injections(), names, self._faults),
        )

    def _members(self, *, shift: bool) -> list[Member]:
        store = LocalStore()
        found = []
        for rank, host in enumerate(self.hosts):
            index = self.fabric.plan.hosts.index(host)
            first, second = (
                Context(endpoint, next_hop_mac=mac)
                for endpoint, mac in (self.fabric.endpoint(index, rail) for rail in (0, 1))
            )
            make: MakeQp = QP
            if shift:
                make = self._shifting(Backup(first, second, store, self.settings), host.name)
            member = Member(self.job, rank, first, make)
            member.now_ns = lambda: self.fabric.now_ns
            found.append(member)
        return found

    def _shifting(self, backup: Backup, host: str) -> MakeQp:
        backup.on_event = lambda event: self.events.append((self.fabric.now_ns, host, event))
        self._backups.append(backup)
        return lambda pd, init: ShiftQP(pd, init, backup=backup)

    def _begins(self, rank: int, step: int) -> None:
        into_s = self.options.into_step_s
        later_ns = round(1e9 * (self.into_step_s if into_s is None else into_s))
        for at, word in zip(self.options.death, ("down", "up"), strict=True):
            if rank == 0 and step == at:
                self._due.append((self.fabric.now_ns + later_ns, word))

    def _goes_on(self, member: Member, steps: Iterator[None]) -> bool:
        try:
            next(steps)
        except StopIteration:
            return False
        except LabError as error:
            member.error = f"{self.hosts[member.rank].name}: {error}"
            self._is_over = True
            return False
        return True

    def _advance(self) -> None:
        now_ns = self.fabric.now_ns
        self.fabric.run(min([now_ns + self.look_ns, *(max(at, now_ns + 1) for at, _ in self._due)]))
        for backup in self._backups:
            backup.advance()
        while self._due and self._due[0][0] <= self.fabric.now_ns:
            _, word = self._due.pop(0)
            self.fabric.change(self.wanted(word)(self.fabric.plan))
            self._faults += self.fabric.plan.faults
            if word == "down":
                self.died_ns = self.fabric.now_ns


def first_events(outcome: Outcome) -> Iterator[Moment]:
    """What the table shows: transitions, without those that only carry figures."""
    for moment in outcome.moments:
        if moment.event.side == "sender" and moment.event.before != moment.event.after:
            yield moment


# --- The run directory ---------------------------------------------------------------------------


def write(outcomes: Sequence[Outcome], options: Options, clock: str, under: Path = RUNS) -> Path:
    plan, hosts = plan_of(options)
    runs = [_run(each, options, clock, tuple(host.name for host in hosts)) for each in outcomes]
    directory = RunDirectory.create(options.name, under=under)
    about = environment()
    directory.manifest(
        state="running",
        name=options.name,
        clock=clock,
        grade="virtual" if clock == "virtual" else "identity",
        seeds=[options.seed],
        topology=options.topology,
        topology_hash=plan.digest,
        faults=[],
        hosts=[host.name for host in plan.plain_hosts],
        notes=[],
        demo={"story": "failover", **dataclasses.asdict(options)},
        environment=about,
    )
    workload_record.write(directory, runs)
    with directory.growing_table("events") as add:
        for run in runs:
            for part in workload_record.events(run):
                add(part)
    directory.manifest(
        state="done",
        verdict="passed" if outcomes[-1].right else "failed",
        runs=[{**run.summary(), "run": run.name, **run.facts} for run in runs],
        environment=about,
    )
    return directory.path


def _run(outcome: Outcome, options: Options, clock: str, hosts: tuple[str, ...]) -> WorkloadRun:
    name = "shift" if outcome.shift else "rc"
    kept = ("events", "fidelity", "shift")  # elsewhere in the directory
    return WorkloadRun(
        transport=name,
        protocol=name,
        congestion_control="none",
        seed=options.seed,
        clock=clock,
        hosts=hosts,
        messages=np.zeros(0, MESSAGE),
        end_ns=outcome.end_ns,
        links=outcome.links,
        events=outcome.events,
        transitions=[
            each.event.row()
            | {"time_ns": outcome.died_ns + each.at_ns, "host": each.host, "peer": each.peer}
            for each in outcome.moments
        ],
        verified=None if outcome.errors else outcome.right,  # the job stopped: not compared
        problems=list(outcome.errors),
        fidelity=outcome.fidelity,
        figures={"steps": outcome.steps_done, "step_p50_ns": outcome.step_p50_ns},
        facts={
            "programs": {host: _program(outcome, n, host) for n, host in enumerate(hosts)},
            "failover": {k: v for k, v in outcome.document().items() if k not in kept},
        },
    )


def _program(outcome: Outcome, rank: int, host: str) -> dict[str, Any]:
    errors = [each for each in outcome.errors if each.startswith(f"{host}: ")]
    sent = [link["sent"] for link in outcome.links if link["name"].startswith(f"{host}->")]
    return {
        "run": f"lab demo failover, rank {rank} of {len(outcome.checksums)}",
        "status": 1 if errors else 0,
        "killed": None,
        "tries": 1,
        "took_s": round(outcome.end_ns / 1e9, 3),
        "roce_packets": sum(sent),
        "matched": None,
        "output": errors[0] if errors else f"model {outcome.checksums[rank]}",
    }
