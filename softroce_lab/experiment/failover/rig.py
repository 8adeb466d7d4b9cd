# SPDX-License-Identifier: GPL-2.0-or-later
"""Both jobs over a lab that is up, and what came of them."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from softroce_lab import topology
from softroce_lab.errors import LabError, RunError, UserError
from softroce_lab.experiment import real
from softroce_lab.experiment.failover import ring_job
from softroce_lab.experiment.failover.ring_job import Job, Member
from softroce_lab.experiment.hosts.rnics import opened
from softroce_lab.experiment.observation import Observation
from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric.lab import Lab
from softroce_lab.faults import live, resolve
from softroce_lab.plan.plan import Node, Plan
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, environment
from softroce_lab.transports.shift import (
    Backup,
    Event,
    Pump,
    Settings,
    ShiftQP,
    StoreServer,
    TcpStore,
)
from softroce_lab.verbs import GID, QP, Context

_MS = 1_000_000
_PATH_MTU = 1024
_INTO_STEP_S = 0.002
_SETTINGS = Settings(probe_interval_ns=20 * _MS, most_probe_interval_ns=500 * _MS)


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
        """The steps in which the NIC dies, and is back."""
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
        """As `--json` prints it."""
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
    """Both jobs."""
    jobs = {"shift" if each.shift else "plain": each.document() for each in outcomes}
    return {"schema_version": SCHEMA_VERSION, "jobs": jobs, "environment": environment()}


def plan_of(options: Options) -> tuple[Plan, tuple[Node, ...]]:
    """The fabric, and the hosts that take part. UserError: one of them has no second rail."""
    plan = topology.load(options.topology, name=options.name)
    hosts = plan.plain_hosts
    if options.hosts is not None:
        if not 2 <= options.hosts <= len(hosts):
            raise UserError(
                f"{options.hosts} hosts", hint=f"{plan.name} has {len(hosts)}; two at least"
            )
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


def run(options: Options, say: Callable[[str], None]) -> list[Outcome]:
    """The job without SHIFT and with it. The lab is gone afterwards."""
    plan, hosts = plan_of(options)
    job = job_of(options, len(hosts))
    right = ring_job.reference(job)
    with fabric.owned(plan, mode=options.mode, say=say) as lab:
        outcomes = []
        for shift in (False, True):
            say(f"the job {'with' if shift else 'without'} SHIFT")
            outcomes.append(_Run(lab, hosts, job, options, right).run(shift=shift))
    return outcomes


def job_of(options: Options, hosts: int) -> Job:
    """The job of so many hosts."""
    quantum = hosts * ring_job.PIECES
    values = max(options.model_bytes // 4 // quantum, 1) * quantum
    return Job(hosts, options.steps, values, options.seed)


class Run:
    """One job, and what came of it, on either clock."""

    def __init__(self, hosts: tuple[Node, ...], job: Job, options: Options, reference: str) -> None:
        self.hosts, self.job, self.options = hosts, job, options
        self.reference = reference
        self.victim = f"{hosts[0].name}:{hosts[0].ports[0].name}"
        self.events: list[tuple[int, str, Event]] = []
        self.began_ns = 0
        self.died_ns: int | None = None

    def wanted(self, word: str) -> Callable[[Plan], Plan]:
        """How a plan changes when the NIC goes down, or up."""
        impairments = live.parse_impairments([word])
        return lambda plan: live.set_on(plan, resolve.links_of(plan, self.victim), impairments)

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


class _Run(Run):
    """One job over a lab that is up."""

    def __init__(
        self, lab: Lab, hosts: tuple[Node, ...], job: Job, options: Options, reference: str
    ) -> None:
        super().__init__(hosts, job, options, reference)
        self.lab = lab
        self._dies, self._returns = threading.Event(), threading.Event()
        self._over, self._stopping = threading.Event(), threading.Event()

    def run(self, *, shift: bool) -> Outcome:
        observation = Observation(self.lab)
        outcome = self._run(shift=shift)
        observed = observation.end({}, striped=False, hosts=[host.name for host in self.hosts])
        links = tuple(dataclasses.asdict(link) for link in observed.links)
        return dataclasses.replace(
            outcome,
            links=links,
            events=real.events(observed, {}, self.began_ns - observed.epoch_ns),
            fidelity=observed.fidelity.document(),
        )

    def _run(self, *, shift: bool) -> Outcome:
        with ExitStack() as stack:
            members = self._members(stack, shift=shift)
            for rank, member in enumerate(members):
                member.connect(members[rank - 1], members[(rank + 1) % len(members)])
                member.stopping = self._stopping.is_set
            switch = threading.Thread(target=self._switch, daemon=True)
            switch.start()
            threads = [
                threading.Thread(target=self._work, args=[each], daemon=True) for each in members
            ]
            self.began_ns = time.monotonic_ns()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            end_ns = time.monotonic_ns()
            self._over.set()
            self._dies.set()
            self._returns.set()
            switch.join(30)
            self._set("up")
            return self.outcome(members, end_ns, shift=shift)

    # ---------------------------------------------------------------- making it

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
    ) -> ring_job.MakeQp:
        rail = host.ports[1].name
        other = stack.enter_context(opened(self.lab, host.name, path_mtu=_PATH_MTU, rail=rail))
        store = stack.enter_context(contextlib.closing(TcpStore(*server.address)))
        backup = Backup(context, other, store, _SETTINGS)
        backup.on_event = lambda event: self.events.append((time.monotonic_ns(), host.name, event))
        stack.enter_context(Pump(backup))
        return lambda pd, init: ShiftQP(pd, init, backup=backup)

    # ---------------------------------------------------------------- while it runs

    def _work(self, member: Member) -> None:
        try:
            member.run(self._begins)
        except LabError as error:
            member.error = f"{self.hosts[member.rank].name}: {error}"
            self._stopping.set()

    def _begins(self, rank: int, step: int) -> None:
        dies, back = self.options.death
        if rank == 0 and step == dies:
            self._dies.set()
        if rank == 0 and step == back:
            self._returns.set()

    def _switch(self) -> None:
        """The NIC dies and returns, each in the middle of a step."""
        self._dies.wait()
        if not self._over.is_set():
            into_s = self.options.into_step_s
            time.sleep(_INTO_STEP_S if into_s is None else into_s)
            self._set("down")
            self.died_ns = time.monotonic_ns()
        self._returns.wait()
        if not self._over.is_set():
            self._set("up")

    def _set(self, word: str) -> None:
        self.lab.faults.change(self.wanted(word), time.monotonic_ns)


def first_events(outcome: Outcome) -> Iterator[Moment]:
    """What the table shows: transitions, without those that only carry figures."""
    for moment in outcome.moments:
        if moment.event.side == "sender" and moment.event.before != moment.event.after:
            yield moment
