# SPDX-License-Identifier: GPL-2.0-or-later
"""What the directed links of a lab that is up carry and lose, read beside whatever runs.

Frames of a link are those that its far end saw; a host's uplink decides their fate only there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from softroce_lab.fabric import bpf
from softroce_lab.fabric.fault_layout import Hits
from softroce_lab.fabric.view import View
from softroce_lab.fabric.xdp import XdpFabric
from softroce_lab.fabric.xdp_layout import PortCounters, u32
from softroce_lab.faults.effects import Fault, Queue
from softroce_lab.topology.plan import Plan, Port

_IN_FLIGHT_S = 0.002  # what the near end had sent by then has reached the far end, or is lost


@dataclasses.dataclass(frozen=True, slots=True)
class LinkCounts:
    """A directed link's frames since the lab came up, unless the name says bytes."""

    frames: int
    bytes: int
    loss: int  # taken by rules: every model of loss, and named packets
    down: int  # taken because the link was down
    corrupted: int  # delivered with a bit flipped
    no_route: int  # that arrived over this link and could go nowhere
    refused: int  # that arrived over it malformed, spoofed, out of hops, or not of the lab
    emulator: int | None  # that left the near end and never arrived; None: unknown

    def __sub__(self, before: LinkCounts) -> LinkCounts:
        """What was counted since `before`; a rule that was set anew counts from 0."""

        def less(name: str) -> int | None:
            now, then = getattr(self, name), getattr(before, name)
            return None if now is None or then is None else max(0, now - then)

        return LinkCounts(*(less(name) for name in self.__slots__))  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """All directed links at one moment."""

    time_ns: int  # CLOCK_MONOTONIC
    counts: Mapping[int, LinkCounts]  # by directed link
    queued_bytes: Mapping[int, int]


class Meter:
    """Samples a lab. Counts of the emulator's drops only grow, however frames are in flight."""

    def __init__(
        self, plan: Plan, fabric: XdpFabric, queues: bpf.Map, faults: Sequence[Fault]
    ) -> None:
        """Use `metering`."""
        self._plan = plan
        self._fabric = fabric
        self._queues = queues
        self._hosts = {node.name for node in plan.hosts}
        self._words = {fault.rule_id: fault.word for fault in faults}
        self._shaped = {fault.directed_link for fault in faults if fault.shapes}
        self._emulator: dict[int, int] = {}

    def sample(self) -> Sample:
        """The links as they are now. OSError if the lab's maps cannot be read."""
        near = self._fabric.counters()
        time.sleep(_IN_FLIGHT_S)
        now = time.monotonic_ns()
        far = self._fabric.counters()
        hits = self._fabric.hits()
        halves = [half for link in self._plan.links for half in link.halves]
        return Sample(
            time_ns=now,
            counts={
                number: self._link(number, a, b, near, far, hits.get(number, ()))
                for number, a, b in halves
            },
            queued_bytes={number: self._queued(number) for number, _, _ in halves},
        )

    def _queued(self, number: int) -> int:
        value = self._queues.get(u32(number))
        return int.from_bytes(value, sys.byteorder) if value else 0

    def _link(
        self,
        number: int,
        a: Port,
        b: Port,
        near: Mapping[int, PortCounters],
        far: Mapping[int, PortCounters],
        hits: Sequence[Hits],
    ) -> LinkCounts:
        at_a, at_b = far[a.ifindex], far[b.ifindex]
        injected = at_b.injected_rx if a.node in self._hosts else at_a.injected_tx
        by_word = {"down": 0, "corrupt": 0}
        for hit in hits:
            word = self._words.get(hit.rule_id)
            if word in by_word:
                by_word[word] += hit.hits
        down = min(injected, by_word["down"])
        return LinkCounts(
            frames=at_b.rx_packets,
            bytes=at_b.rx_bytes,
            loss=injected - down,
            down=down,
            corrupted=by_word["corrupt"],
            no_route=at_b.no_route,
            refused=at_b.malformed + at_b.unsupported + at_b.spoofed + at_b.ttl_exceeded,
            emulator=self._lost(number, near[a.ifindex], far[b.ifindex], a),
        )

    def _lost(self, number: int, at_a: PortCounters, at_b: PortCounters, a: Port) -> int | None:
        """Conservation of frames; what a host's kernel or socket sent is not counted anywhere.

        A probe or an ARP request that was answered left by the port that it had come in by; and
        a probe of A's own, which no one counted as sent, was answered at B.
        """
        if a.node in self._hosts or number in self._shaped:
            return None
        sent = at_a.tx_packets + at_a.answered + at_b.answered
        lost = max(self._emulator.get(number, 0), sent - at_b.rx_packets)
        self._emulator[number] = lost
        return lost


@contextlib.contextmanager
def metering(seen: View) -> Iterator[Meter]:
    """A meter of a lab that is up. LabError if its maps are gone."""
    with seen.maps() as fabric:
        queues = bpf.Map.pinned(seen.bpffs / "queues")
        try:
            yield Meter(seen.plan, fabric, queues, seen.faults())
        finally:
            queues.close()


@dataclasses.dataclass(frozen=True, slots=True)
class LinkRate:
    """A directed link between two samples."""

    frames_per_second: float
    bits_per_second: float
    counts: LinkCounts  # in between
    queued_bytes: int  # at the second one
    utilisation: float | None  # of the link's rate, 0 to 1; None: it has none


def rates(before: Sample, after: Sample, faults: Sequence[Fault]) -> dict[int, LinkRate]:
    """What every directed link did between two samples."""
    seconds = (after.time_ns - before.time_ns) / 1e9
    limits = {
        fault.directed_link: fault.effect.rate_bps
        for fault in faults
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
