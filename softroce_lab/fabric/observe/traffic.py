# SPDX-License-Identifier: GPL-2.0-or-later
"""What the directed links of a lab that is up carry and lose, read while other processes run.

Frames of a link are those that its far end saw; a host's uplink decides their fate only there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence

from softroce_lab.errors import RunError
from softroce_lab.fabric.bpf import layout
from softroce_lab.fabric.bpf import libbpf as bpf
from softroce_lab.fabric.bpf.layout import PortCounters, u32
from softroce_lab.fabric.bpf.xdp import XdpFabric
from softroce_lab.fabric.daemons import wire, wire_layout
from softroce_lab.fabric.daemons.wire import WireStage
from softroce_lab.fabric.daemons.wire_layout import LinkFigures
from softroce_lab.fabric.observe.view import View
from softroce_lab.faults.layout import Hits
from softroce_lab.plan.effects import Queue
from softroce_lab.plan.plan import Half, Plan
from softroce_lab.telemetry import counters

_IN_FLIGHT_S = 0.002  # what the near end had sent by then has reached the far end, or is lost
_STAGE_S = 1.0  # how long the wire stage may take to respond


class LinkCounts(namedtuple("LinkCounts", counters.LINK)):
    """What `telemetry.counters.LINK` names, of a directed link since the lab came up.

    None: no counter exists.
    """

    __slots__ = ()

    def __sub__(self, before: LinkCounts) -> LinkCounts:
        """What was counted since `before`; a rule that was set again counts from 0."""

        def less(now: int | None, then: int | None) -> int | None:
            return None if now is None or then is None else max(0, now - then)

        return LinkCounts(*map(less, self, before))


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    time_ns: int  # CLOCK_MONOTONIC
    plan: Plan  # with the faults of that moment
    counts: Mapping[int, LinkCounts]  # by directed link
    hits: Mapping[int, Sequence[Hits]]
    queued_bytes: Mapping[int, int]
    ports: Mapping[int, PortCounters]  # by ifindex
    stage: Mapping[int, LinkFigures] | None  # None: there is no wire stage


@dataclasses.dataclass(frozen=True, slots=True)
class _Readings:
    near: Mapping[int, PortCounters]  # a little earlier than
    far: Mapping[int, PortCounters]
    hits: Mapping[int, Sequence[Hits]]
    stage: Mapping[int, LinkFigures] | None
    sockets: Mapping[int, wire_layout.PortFigures]  # of the wire stage, by ifindex


class Meter:
    """Samples a lab. Counts of the emulator's drops only grow, however frames are in flight."""

    def __init__(
        self, seen: View, fabric: XdpFabric, queues: bpf.Map, stage: WireStage | None
    ) -> None:
        """Use `metering`."""
        self._seen = seen
        self._fabric = fabric
        self._queues = queues
        self._stage = stage
        self._hosts = {node.name for node in seen.plan.hosts}
        self._halves = seen.plan.halves
        self._emulator: dict[int, int] = {}

    def sample(self) -> Sample:
        """The links as they are now. RunError if the lab or its wire stage is gone."""
        self._seen = self._seen.now()
        near, (stage, sockets) = self._fabric.counters(), self._stage_figures()
        time.sleep(_IN_FLIGHT_S)
        now_ns = time.monotonic_ns()
        read = _Readings(near, self._fabric.counters(), self._fabric.hits(), stage, sockets)
        plan = self._seen.plan
        words = {fault.rule_id: fault.word for fault in plan.faults}
        return Sample(
            time_ns=now_ns,
            plan=plan,
            counts={half[0]: self._count(half, read, words) for half in self._halves},
            hits=read.hits,
            queued_bytes={number: self._queued(number) for number, _, _ in self._halves},
            ports=read.far,
            stage=stage,
        )

    def _queued(self, number: int) -> int:
        value = self._queues.get(u32(number))
        return layout.waiting_bytes_of(value) if value else 0

    def _stage_figures(
        self,
    ) -> tuple[dict[int, LinkFigures] | None, dict[int, wire_layout.PortFigures]]:
        if self._stage is None:
            return None, {}
        links = {number: self._stage.link(number) for number, _, _ in self._halves}
        return links, self._stage.ports(self._seen.plan)

    def _count(self, half: Half, read: _Readings, words: Mapping[int, str]) -> LinkCounts:
        number, a, b = half
        at_a, at_b = read.far[a.ifindex], read.far[b.ifindex]
        injected = at_b.injected_rx if a.node in self._hosts else at_a.injected_tx
        hits = {"down": 0, "corrupt": 0}
        for hit in read.hits.get(number, ()):
            word = words.get(hit.rule_id, "")
            if word in hits:
                hits[word] += hit.hits
        down = min(injected, hits["down"])
        stage = None if read.stage is None else read.stage[number]
        socket = read.sockets.get(b.ifindex)
        return LinkCounts(
            frames=at_b.rx_packets,
            bytes=at_b.rx_bytes,
            loss=injected - down,
            down=down,
            queue=stage.dropped_limit if stage else None,
            marked=stage.marked if stage else None,
            trimmed=stage.trimmed if stage else None,
            corrupted=hits["corrupt"],
            no_route=at_b.no_route,
            refused=at_b.malformed + at_b.unsupported + at_b.spoofed + at_b.ttl_exceeded,
            emulator=self._lost(half, read),
            to_stage=at_b.wire_gone + (socket.lost_before if socket else 0),
        )

    def _lost(self, half: Half, read: _Readings) -> int | None:
        """By conservation of frames; what a host's kernel or socket sent is not counted anywhere.

        A probe or ARP request with a reply left by the port it had come in by; a probe of
        A's own, which is not counted as sent, got its reply at B. The wire stage counts what it
        sends itself.
        """
        number, a, b = half
        if a.node in self._hosts:
            return None
        at_a, at_b = read.near[a.ifindex], read.far[b.ifindex]
        sent = at_a.tx_packets + at_a.answered + at_b.answered
        taken = at_a.unwired  # had nowhere to go
        if read.stage is not None:
            figures = read.stage[number]
            sent += figures.released
            taken += figures.tx_failed + figures.lost_port_down
        lost = max(self._emulator.get(number, 0), max(0, sent - at_b.rx_packets) + taken)
        self._emulator[number] = lost
        return lost


@contextlib.contextmanager
def metering(seen: View) -> Iterator[Meter]:
    """A meter of a lab that is up. LabError if its maps are gone."""
    with contextlib.ExitStack() as stack:
        fabric = stack.enter_context(seen.maps())
        queues = stack.enter_context(contextlib.closing(bpf.Map.pinned(seen.bpffs / "queues")))
        stage = None
        if (seen.directory / wire.SOCKET).exists():
            with contextlib.suppress(RunError):  # it died; what is lost there shows as such
                stage = stack.enter_context(WireStage(seen.directory, _STAGE_S))
        yield Meter(seen, fabric, queues, stage)


@dataclasses.dataclass(frozen=True, slots=True)
class LinkRate:
    frames_per_second: float
    bits_per_second: float
    counts: LinkCounts  # in between
    queued_bytes: int  # at the second one
    utilisation: float | None  # of the link's rate, 0 to 1; None: it has none


def rates(before: Sample, after: Sample) -> dict[int, LinkRate]:
    seconds = (after.time_ns - before.time_ns) / 1e9
    limits = {
        fault.directed_link: fault.effect.rate_bps
        for fault in after.plan.faults
        if isinstance(fault.effect, Queue) and fault.effect.rate_bps
    }
    made = {}
    for number, counts in after.counts.items():
        since = counts - before.counts[number]
        bits = 8 * since.bytes / seconds
        made[number] = LinkRate(
            frames_per_second=since.frames / seconds,
            bits_per_second=bits,
            counts=since,
            queued_bytes=after.queued_bytes[number],
            utilisation=bits / limits[number] if number in limits else None,
        )
    return made
