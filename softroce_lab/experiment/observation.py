# SPDX-License-Identifier: GPL-2.0-or-later
"""What a lab's fabric did while something ran, from its counters, rings and processes.

Whose loss was it? Frames of RoCE are conserved over every link, and at every host's socket. What
the near end handed to a link less what the far end's program saw is what the emulator lost; a
host's frames are handed to its uplink by its socket, and counted by its process. On a shaped link
the wire stage counts what it handed on.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from softroce_lab.experiment.forecast import idle_rules
from softroce_lab.fabric import lacks
from softroce_lab.fabric.bpf.layout import PortCounters
from softroce_lab.fabric.daemons import monitor, wire_layout
from softroce_lab.fabric.daemons.wire import WireStage
from softroce_lab.fabric.lab import Lab
from softroce_lab.plan import locate
from softroce_lab.plan.base_rtt import FIRST_RAILS, Rails
from softroce_lab.plan.effects import Delay, Fault, Queue, Reorder
from softroce_lab.plan.plan import Plan, Port
from softroce_lab.telemetry.drops import DROP, KIND_NONE, Drops, read_drops
from softroce_lab.telemetry.fidelity import Fidelity, Pause, judge
from softroce_lab.telemetry.links import LinkFigures, PortFigures, StageFigures, WireFigures
from softroce_lab.telemetry.stolen import StolenTime

_SYNC_S = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class Observed:
    epoch_ns: int  # CLOCK_MONOTONIC when the observation began
    end_ns: int
    recorded: bool  # whether there were ring buffers for what follows
    injections: Drops  # all that faults did to packets of the lab's RNICs
    links: list[LinkFigures]
    ports: list[PortFigures]
    stage: StageFigures
    idle_rules: list[str]  # that did nothing to any packet
    faults: list[Fault]  # set when it began, or when it ended
    fidelity: Fidelity
    pauses: list[Pause]  # of hosts and daemons, while the workload went on


class Observation:
    """Begins when it is made, ends with `end`. EnvironmentLackError without AF_XDP."""

    def __init__(self, lab: Lab, rails: Rails = FIRST_RAILS) -> None:
        lacks.need(lacks.AF_XDP)
        self._lab = lab
        self._rails = rails
        self._before = Counts.of(lab)
        self._written = lab.drained(_SYNC_S)
        # Connected to them, for then they notice their pauses (native/system/pauses.hpp).
        self._stage = WireStage(lab.directory)
        self._monitor = None
        if lacks.RING_BUFFERS not in lab.lacks:
            self._monitor = monitor.Connection(lab.directory)
        self._stolen = StolenTime()
        self.epoch_ns = time.monotonic_ns()

    def end(
        self,
        reports: Mapping[str, dict[str, Any]],
        *,
        striped: bool = True,
        hosts: Iterable[str] | None = None,
        workload_ns: tuple[int, int] | None = None,
    ) -> Observed:
        """`reports`: figures of each host process, by its name; all have ended.

        `striped`: only what was done to packets with the lab's header is of this run. `hosts`:
        those that took part, where not all of them report. `workload_ns`: when the workload began
        and ended, since the epoch; by default it lasted from the epoch until now.
        """
        lab = self._lab
        begun_ns, over_ns = workload_ns or (0, time.monotonic_ns() - self.epoch_ns)
        lab.resume()  # one that still stands still would not answer
        drained = lab.drained(_SYNC_S)
        end_ns = time.monotonic_ns()
        plan = lab.present_plan()  # others may have changed faults meanwhile
        met = {fault.rule_id: fault for fault in (*lab.plan.faults, *plan.faults)}
        counts = Counts.of(lab) - self._before
        accounts = Accounts(lab.plan, counts, reports, met.values(), self._rails)
        links, ports, stage = accounts.links(), accounts.ports(), accounts.stage()
        unwritten = drained.drops_lost - self._written.drops_lost
        stolen = self._stolen.share()
        pauses = self._pauses(reports, drained, self.epoch_ns + begun_ns, self.epoch_ns + over_ns)
        fidelity = judge(
            links, ports, reports, stage, unwritten=unwritten, stolen=stolen, pauses=pauses
        )
        return Observed(
            epoch_ns=self.epoch_ns,
            end_ns=end_ns,
            recorded=lacks.RING_BUFFERS not in lab.lacks,
            injections=self._recorded(end_ns, hosts or reports, striped=striped),
            links=links,
            ports=ports,
            stage=stage,
            idle_rules=idle_rules.find(
                lab.plan.faults,
                lab.xdp.hits(),
                {each.directed_link for each in links if each.wire},
                end_ns - self.epoch_ns,
            ),
            faults=list(met.values()),
            fidelity=fidelity,
            pauses=pauses,
        )

    def _pauses(
        self,
        reports: Mapping[str, dict[str, Any]],
        drained: monitor.Drained,
        begin_ns: int,
        end_ns: int,
    ) -> list[Pause]:
        """Of all processes. Ends the connections to the daemons."""
        with self._stage:
            daemons = {"the wire stage": self._stage.pauses(), "the monitor": drained.pauses}
        if self._monitor is not None:
            self._monitor.close()
        hosts = {name: figures["pauses"] for name, figures in reports.items()}
        return [
            pause
            for name, pauses in (hosts | daemons).items()
            for pause in Pause.within(name, pauses, begin_ns, end_ns)
        ]

    def _recorded(self, until_ns: int, hosts: Iterable[str], *, striped: bool) -> Drops:
        """What was done to packets between ports of these hosts, not to other traffic."""
        if lacks.RING_BUFFERS in self._lab.lacks:
            return np.empty(0, DROP)
        path = self._lab.directory / monitor.DROPS
        drops = read_drops(path, since_ns=self.epoch_ns, until_ns=until_ns)
        used = [
            node.ports[rail]
            for node in map(self._lab.plan.node, hosts)
            for rail in self._rails.get(node.name, (0,))
        ]
        addresses = [int(ipaddress.IPv4Address(port.address or 0)) for port in used]
        ours: npt.NDArray[np.bool_] = np.isin(drops["src"], addresses)
        ours &= np.isin(drops["dst"], addresses)
        return drops[ours & (drops["kind"] != KIND_NONE) if striped else ours]


# --- What was counted ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class WireCounts:
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
        rails: Rails = FIRST_RAILS,
    ) -> None:
        """`faults`: all that were set at some time of the run; by default the plan's."""
        self._plan, self._counts, self._hosts, self._rails = plan, counts, hosts, rails
        self._names = locate.arrows(plan)
        self._faults = plan.faults if faults is None else faults

    def links(self) -> list[LinkFigures]:
        return [self._link(number, near, far) for number, near, far in self._plan.halves]

    def _link(self, number: int, near: Port, far: Port) -> LinkFigures:
        at_near, at_far = self._counts.ports[near.ifindex], self._counts.ports[far.ifindex]
        wire = self._counts.wire.links.get(number)
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
            records_lost=at_near.drop_log_lost + self._counts.missed[number],
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
        if reports is not None and near != self._used(near.node):
            reports = reports.get("other_rails", {}).get(near.name)
        return arrived if reports is None else int(reports["frames_sent"])

    def _used(self, host: str) -> Port:
        return self._plan.node(host).ports[self._rails.get(host, (0,))[0]]

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
            handed=self._counts.ports[port.ifindex].to_xsk,
            taken=reports["frames_received"],
            emulator_drops=statistics["rx_dropped"] + statistics["rx_ring_full"],
        )

    def stage(self) -> StageFigures:
        wire, counted = self._counts.wire, self._counts.ports.values()
        before = sum(port.lost_before for port in wire.ports.values())
        return StageFigures(
            fifo=bool(wire.stage.fifo),
            cpu_share=round(wire.stage.cpu_share, 4),
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
