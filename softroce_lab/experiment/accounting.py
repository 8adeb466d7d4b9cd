# SPDX-License-Identifier: GPL-2.0-or-later
"""Whose loss was it? Conservation of RoCE frames over every link, and at every host's socket.

What the near end handed to a link less what the far end's program saw is what the emulator lost;
a host's frames are handed to its uplink by its socket, and counted by its process. On a shaped
link the wire stage counts what it handed on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

from softroce_lab.fabric.bpf.layout import PortCounters
from softroce_lab.fabric.daemons import wire_layout
from softroce_lab.fabric.daemons.wire import WireStage
from softroce_lab.fabric.lab import Lab
from softroce_lab.plan import locate
from softroce_lab.plan.effects import Delay, Fault, Queue, Reorder
from softroce_lab.plan.plan import Plan, Port
from softroce_lab.telemetry.links import LinkFigures, PortFigures, StageFigures, WireFigures


@dataclasses.dataclass(frozen=True, slots=True)
class WireCounts:
    """What a lab's wire stage counted, by directed link and by ifindex."""

    stage: wire_layout.StageFigures
    links: Mapping[int, wire_layout.LinkFigures]
    ports: Mapping[int, wire_layout.PortFigures]

    def __sub__(self, before: WireCounts) -> WireCounts:
        """What was counted since `before`; what the stage served only since counts from then."""
        return WireCounts(
            self.stage - before.stage,
            {n: now - before.links[n] if n in before.links else now
             for n, now in self.links.items()},
            {n: now - before.ports[n] if n in before.ports else now
             for n, now in self.ports.items()},
        )  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """All that a lab's parts counted up to a moment."""

    ports: Mapping[int, PortCounters]
    wire: WireCounts
    missed: Sequence[int]  # by captures, of each directed link

    @classmethod
    def of(cls, lab: Lab) -> Self:
        """Read them. RunError if the wire stage is dead."""
        with WireStage(lab.directory) as stage:
            figures = stage.figures()
            numbers = range(2 * len(lab.plan.links)) if figures.ports else ()
            links = {number: stage.link(number) for number in numbers}
            wire = WireCounts(figures, links, stage.ports(lab.plan))
        return cls(lab.xdp.counters(), wire, lab.xdp.missed())

    def __sub__(self, before: Counts) -> Counts:
        ports = {ifindex: self.ports[ifindex] - before.ports[ifindex] for ifindex in self.ports}
        missed = [now - then for now, then in zip(self.missed, before.missed, strict=True)]
        return Counts(ports, self.wire - before.wire, missed)


class Accounts:
    """What a lab's parts counted in one run, and each host process's report."""

    def __init__(
        self,
        plan: Plan,
        counts: Counts,
        hosts: Mapping[str, dict[str, Any]],
        faults: Collection[Fault] | None = None,
        rails: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`faults`: all that were set at some time of the run; by default the plan's.

        `rails`: by name, of hosts whose process uses another one than the first, counted from 0.
        """
        self._rails = rails
        self._plan = plan
        self._names = locate.arrows(plan)
        self._faults = plan.faults if faults is None else faults
        self._counted = counts.ports
        self._wire = counts.wire
        self._missed = counts.missed
        self._hosts = hosts

    def links(self) -> list[LinkFigures]:
        """Every directed link."""
        return [self._link(number, near, far) for number, near, far in self._plan.halves]

    def _link(self, number: int, near: Port, far: Port) -> LinkFigures:
        at_near, at_far = self._counted[near.ifindex], self._counted[far.ifindex]
        wire = self._wire.links.get(number)
        # The fate of a host's frames is decided where its uplink ends, a switch's where it begins.
        from_host = self._plan.node(near.node).is_host
        injected = at_far.injected_rx_roce if from_host else at_near.injected_tx_roce
        if from_host:
            sent = self._sent(near, at_far.rx_roce)
        else:
            sent = at_near.tx_roce + (wire.released_roce if wire else 0)
        failed = wire.tx_failed_roce + wire.lost_port_down_roce if wire else 0
        return LinkFigures(
            directed_link=number,
            name=self._names[number],
            sent=sent,
            injected_drops=injected + (wire.dropped_limit_roce if wire else 0),
            received=at_far.rx_roce,
            emulator_drops=sent - at_far.rx_roce + failed,
            # A switch's port logs for both directions of a host's link: once, with its own.
            records_lost=at_near.drop_log_lost + self._missed[number],
            wire=_digest(wire, orderly=self._is_orderly(number)) if wire and wire.arrived else None,
        )

    def _is_orderly(self, number: int) -> bool:
        """Whether no fault on the link lets one frame overtake another."""
        effects = (fault.effect for fault in self._faults if fault.directed_link == number)
        return not any(
            isinstance(effect, Reorder)
            or (isinstance(effect, Delay) and effect.jitter_ns and not effect.preserve)
            or (isinstance(effect, Queue) and effect.trim)  # headers go first
            for effect in effects
        )

    def _sent(self, near: Port, arrived: int) -> int:
        """Of rails that no process uses, no more is known than what arrived."""
        reports = self._hosts.get(near.node)
        if reports is None:
            return arrived
        if near != self._used(near.node):
            reports = reports.get("other_rails", {}).get(near.name)
        return arrived if reports is None else int(reports["frames_sent"])

    def _used(self, host: str) -> Port:
        return self._plan.node(host).ports[self._rails.get(host, 0)]

    def ports(self) -> list[PortFigures]:
        """Every port that a process used; of a host's second one with its name."""
        found = []
        for name, reports in self._hosts.items():
            found.append(self._port(name, self._used(name), reports))
            for port in self._plan.node(name).ports:
                if (of_port := reports.get("other_rails", {}).get(port.name)) is not None:
                    found.append(self._port(f"{name}:{port.name}", port, of_port))
        return found

    def _port(self, name: str, port: Port, reports: dict[str, Any]) -> PortFigures:
        statistics = reports["port"]
        return PortFigures(
            node=name,
            handed=self._counted[port.ifindex].to_xsk,
            taken=reports["frames_received"],
            emulator_drops=statistics["rx_dropped"] + statistics["rx_ring_full"],
        )

    def stage(self) -> StageFigures:
        """The wire stage as a whole."""
        before = sum(port.lost_before for port in self._wire.ports.values())
        counted = self._counted.values()
        return StageFigures(
            fifo=bool(self._wire.stage.fifo),
            cpu_share=round(self._wire.stage.cpu_share, 4),
            lost=before + sum(port.wire_gone + port.unwired for port in counted),
            no_route=sum(port.no_route_roce for port in counted),
        )


def _digest(wire: wire_layout.LinkFigures, *, orderly: bool) -> WireFigures:
    return WireFigures(
        released=wire.released,
        dropped_by_queue=wire.dropped_limit,
        duplicated=wire.duplicated,
        marked=wire.marked,
        trimmed=wire.trimmed,
        reordered=wire.reordered,
        overtaken=wire.overtaken,
        disordered=wire.overtaken if orderly else 0,
        most_waiting_packets=wire.most_waiting_packets,
        most_waiting_bytes=wire.most_waiting_bytes,
        late_p50_ns=wire.late.percentile(50),
        late_p99_ns=wire.late.percentile(99),
        late_most_ns=wire.late_most_ns,
        residence_p50_ns=wire.residence.percentile(50),
        residence_p99_ns=wire.residence.percentile(99),
    )
