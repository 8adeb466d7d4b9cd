# SPDX-License-Identifier: GPL-2.0-or-later
"""The faults of a lab that is up: set, changed while traffic runs, begun again.

Three parts of a lab act on them: the XDP programs decide, the wire stage holds frames, and the
switches' routes avoid links that are down. They change in an order that loses no frame: sockets and
shapes are there before XDP hands over the first frame, and stay until it hands over no more.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from softroce_lab.errors import RunError
from softroce_lab.fabric import lacks, planfile, wire
from softroce_lab.fabric.wire import WireStage
from softroce_lab.fabric.xdp import XdpFabric
from softroce_lab.faults.effects import Down, Fault
from softroce_lab.topology import routing
from softroce_lab.topology.plan import Plan

LOCK = "faults.lock"  # held by who changes faults, whoever holds the lab itself
FILES = (LOCK, planfile.FILE, planfile.NEXT)

Namespace = Callable[[str], AbstractContextManager[int]]  # node -> descriptor of its namespace


@contextlib.contextmanager
def changing(directory: Path) -> Iterator[None]:
    """One change at a time, whatever process makes it."""
    fd = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def shaped(plan: Plan) -> dict[int, list[Fault]]:
    """The faults of each directed link that needs the wire stage."""
    found: dict[int, list[Fault]] = {}
    for fault in plan.faults:
        if fault.shapes:
            found.setdefault(fault.directed_link, []).append(fault)
    return found


def down_links(plan: Plan, now_ns: int) -> set[int]:
    """The indexes of the links that are down at a moment of the timeline."""
    return {
        fault.directed_link // 2
        for fault in plan.faults
        if isinstance(fault.effect, Down) and fault.window.acts(now_ns)
    }


def next_turn_ns(plan: Plan, now_ns: int) -> int | None:
    """The next moment of the timeline at which a link goes down or comes up; None: never."""
    downs = (fault for fault in plan.faults if isinstance(fault.effect, Down))
    turns = (fault.window.next_change_ns(now_ns) for fault in downs)
    return min((turn for turn in turns if turn is not None), default=None)


@dataclasses.dataclass(frozen=True, slots=True)
class FaultControl:
    """Hold of the parts of one lab that act on faults. RunError if the wire stage is dead."""

    directory: Path
    xdp: XdpFabric
    namespace: Namespace

    def change(self, alter: Callable[[Plan], Plan], clock: Callable[[], int]) -> Plan:
        """Let the lab's faults be those of what `alter` makes of its plan, which is returned.

        `clock` tells CLOCK_MONOTONIC. UserError if the plan cannot be had, EnvironmentLackError
        if the machine cannot shape links: nothing changes then.
        """
        with changing(self.directory):
            before = planfile.read(self.directory)
            after = alter(before)
            self._apply(before, after, clock())
            planfile.replace(after, self.directory)
        return after

    def restart(self, epoch_ns: int) -> None:
        """Let all faults begin again: streams, counts, and the timeline, at `epoch_ns`."""
        with changing(self.directory):
            plan = planfile.read(self.directory)
            if shaped(plan):
                with WireStage(self.directory) as stage:
                    stage.set_epoch(epoch_ns)
            self.xdp.restart(epoch_ns)
            self.reroute(plan, 0)

    def reroute(self, plan: Plan, now_ns: int) -> None:
        """Lead routes around the links that are down at this moment of the timeline."""
        if any(isinstance(fault.effect, Down) for fault in plan.faults):
            self.xdp.set_routes(plan, routing.around(plan, down_links(plan, now_ns)))

    def _apply(self, before: Plan, after: Plan, clock_ns: int) -> None:
        old, new = shaped(before), shaped(after)
        epoch_ns = self.xdp.timeline.epoch_ns
        if new:
            lacks.need(lacks.AF_XDP)
            with WireStage(self.directory) as stage:
                stage.set_epoch(epoch_ns)
                self._serve(stage, after, new.keys() - old.keys())
                self._shape(stage, old, new)
                self.xdp.set_faults(after.faults)
                self._forget(stage, old.keys() - new.keys())
        else:
            self.xdp.set_faults(after.faults)
            if old:
                self._forget_all(old.keys())
        if self._routes_move(before, after):
            now_ns = max(clock_ns - epoch_ns, 0)
            self.xdp.set_routes(after, routing.around(after, down_links(after, now_ns)))

    def _serve(self, stage: WireStage, plan: Plan, links: set[int]) -> None:
        """Give the stage sockets wherever frames of these links may come from or go to."""
        ends = wire.links_of(plan)
        for port in wire.ports_for(plan, links):
            with self.namespace(port.node) as fd:
                stage.open_port(port, ends[port.ifindex], fd)

    def _shape(
        self, stage: WireStage, old: dict[int, list[Fault]], new: dict[int, list[Fault]]
    ) -> None:
        """Tell the stage every shape that differs, or none of them if one is refused."""
        told: list[int] = []
        try:
            for directed, faults in new.items():
                if faults != old.get(directed):
                    stage.shape(directed, faults)
                    told.append(directed)
        except BaseException:
            for directed in told:
                stage.shape(directed, old.get(directed, ()))
            raise

    @staticmethod
    def _forget(stage: WireStage, links: Iterable[int]) -> None:
        """Let frames of these links pass on at once, for XDP hands over no more."""
        for directed in links:
            stage.shape(directed, ())

    def _forget_all(self, links: Iterable[int]) -> None:
        """The same, if the stage still lives; one that is dead has nothing to forget."""
        with contextlib.suppress(RunError), WireStage(self.directory) as stage:
            self._forget(stage, links)

    @staticmethod
    def _routes_move(before: Plan, after: Plan) -> bool:
        downs = [
            {(f.directed_link, f.window) for f in plan.faults if isinstance(f.effect, Down)}
            for plan in (before, after)
        ]
        return downs[0] != downs[1]
