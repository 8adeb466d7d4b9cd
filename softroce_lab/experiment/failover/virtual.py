# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab demo failover` on the virtual clock: all hosts in this process, with equal results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from softroce_lab.errors import LabError
from softroce_lab.experiment import injections
from softroce_lab.experiment.failover import ring_job
from softroce_lab.experiment.failover.rig import Options, Outcome, Run, job_of, plan_of
from softroce_lab.experiment.failover.ring_job import Job, Member
from softroce_lab.experiment.forecast import assumed_links
from softroce_lab.plan.plan import Node, Plan
from softroce_lab.sim.fabric import SimFabric
from softroce_lab.sim.presets import simulated_host
from softroce_lab.telemetry.links import simulated
from softroce_lab.transports.shift import Backup, LocalStore, Settings, ShiftQP
from softroce_lab.verbs import QP, Context

_PATH_MTU = 1024
_TIMEOUT, _RETRIES = 8, 3  # 1.05 ms, up to four times it; tried four times
_STEP_NS = 2_000  # after which a host that waits looks again
_INTO_STEP_S = 20e-6
_SETTINGS = Settings(probe_interval_ns=1_000_000, most_probe_interval_ns=16_000_000)


def run(options: Options, say: Callable[[str], None] = lambda _: None) -> list[Outcome]:
    """The job without SHIFT and with it."""
    plan, hosts = plan_of(options)
    job = job_of(options, len(hosts))
    right = ring_job.reference(job)
    outcomes = []
    for shift in (False, True):
        say(f"the job {'with' if shift else 'without'} SHIFT")
        outcomes.append(VirtualRun(plan, hosts, job, options, right).run(shift=shift))
    return outcomes


class VirtualRun(Run):
    """One job over a simulated fabric."""

    def __init__(
        self, plan: Plan, hosts: tuple[Node, ...], job: Job, options: Options, reference: str
    ) -> None:
        job = dataclasses.replace(job, timeout=_TIMEOUT, retry_cnt=_RETRIES)
        super().__init__(hosts, job, options, reference)
        self.fabric = SimFabric(
            assumed_links.shaped(plan), simulated_host(path_mtu=_PATH_MTU, carries_payload=True)
        )
        self._backups: list[Backup] = []
        self._due: list[tuple[int, str]] = []  # when the NIC goes down, or up
        self._is_over = False
        self._faults = list(self.fabric.plan.faults)  # all that were set at some time

    def run(self, *, shift: bool) -> Outcome:
        """RunError: the job was over, or had stopped, before the NIC died."""
        members = self._members(shift=shift)
        for rank, member in enumerate(members):
            member.connect(members[rank - 1], members[(rank + 1) % len(members)])
            member.stopping = lambda: self._is_over
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
            events=injections.columns(self.fabric.injections(), names, self._faults),
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
            make: ring_job.MakeQp = QP
            if shift:
                make = self._shifting(Backup(first, second, store, _SETTINGS), host.name)
            member = Member(self.job, rank, first, make)
            member.now_ns = lambda: self.fabric.now_ns
            found.append(member)
        return found

    def _shifting(self, backup: Backup, host: str) -> ring_job.MakeQp:
        backup.on_event = lambda event: self.events.append((self.fabric.now_ns, host, event))
        self._backups.append(backup)
        return lambda pd, init: ShiftQP(pd, init, backup=backup)

    def _begins(self, rank: int, step: int) -> None:
        into_s = self.options.into_step_s
        later_ns = round(1e9 * (_INTO_STEP_S if into_s is None else into_s))
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
        self.fabric.run(min([now_ns + _STEP_NS, *(max(at, now_ns + 1) for at, _ in self._due)]))
        for backup in self._backups:
            backup.advance()
        while self._due and self._due[0][0] <= self.fabric.now_ns:
            _, word = self._due.pop(0)
            self.fabric.change(self.wanted(word)(self.fabric.plan))
            self._faults += self.fabric.plan.faults
            if word == "down":
                self.died_ns = self.fabric.now_ns
