# SPDX-License-Identifier: GPL-2.0-or-later
"""What a plan's fabric does to one packet when it is empty: the base round trip, and the line rate.

Timers and windows on the virtual clock follow from it (recovery/defaults.py).
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import heapq
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from types import MappingProxyType

from softroce_lab.plan.effects import Delay, Queue
from softroce_lab.plan.plan import Half, Plan, Port

HEADERS_BYTES = 14 + 20 + 8 + 12 + 8 + 40 + 4  # Ethernet to the lab's header, and the ICRC
_CONTROL_BYTES = 200
_PICOSECONDS = 10**12

LEAST_RTT_NS = 1000
"""Timers are not made for less: where nothing takes time, they would be due at each nanosecond."""

MOST_WINDOW_PACKETS = 1 << 20
"""What the engine can keep in flight to one peer (native/engine/striped/peer.hpp)."""

_Links = dict[str, list[tuple[int, str]]]
"""By node: the directed links there, and the node at the other end of each."""


@dataclasses.dataclass(frozen=True, slots=True)
class Empty:
    """The fabric without other traffic."""

    rtt_ns: int  # a full packet there and a small one back, between the hosts farthest apart
    rate_bps: int  # of the slowest link at a host, either way; 0: nothing limits it
    buffer_ns: int  # the longest that a full queue of a link takes to drain; 0: no queue fills
    way_bps: int = 0  # of one path, the widest between two hosts; 0: no narrower than at hosts
    room_bytes: int = 0  # of the shortest queue; 0: no queue has a limit

    def window_packets(self, path_mtu: int, *, one_path: bool = False, machine_ns: int = 0) -> int:
        """One bandwidth-delay product, and half as much again for reports that wait.

        A sender receives reports of arrivals up to a quarter of a round trip late, or 64 packets.
        It is no more than the way and the shortest queue hold. `one_path`: all packets to a peer
        take the same path; `machine_ns`: what a machine adds to the round trip.
        """
        if not self.rate_bps:
            return 1024
        frame_bytes = path_mtu + HEADERS_BYTES
        rate_bps = self.way_bps if one_path and self.way_bps else self.rate_bps

        def product(rtt_ns: int) -> int:
            return -(-rate_bps * rtt_ns // (8 * frame_bytes * 10**9))

        at_work = product(self.rtt_ns + machine_ns)
        wanted = at_work + at_work // 2 + 8
        if self.room_bytes:
            wanted = min(wanted, product(self.rtt_ns) + self.room_bytes // frame_bytes)
        return min(max(wanted, 16), MOST_WINDOW_PACKETS)


def of(
    plan: Plan,
    path_mtu: int,
    hosts_ns: int = 0,
    rails: Mapping[str, int] = MappingProxyType({}),
    others: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> Empty:
    """Of the hosts' first rails; `hosts_ns` is what the hosts at both ends add to a round trip.

    `rails`: by name, of hosts that use another one, counted from 0; `others`: of hosts that use
    further ones, too. Then the round trip is the longest of them. It is no less than
    `LEAST_RTT_NS`.
    """
    found = _of_links(plan, path_mtu, tuple(sorted(rails.items())))
    rtt_ns = found.rtt_ns
    for at in range(max(map(len, others.values()), default=0)):
        further = {host: used[at] for host, used in others.items() if at < len(used)}
        used = tuple(sorted({**rails, **further}.items()))
        rtt_ns = max(rtt_ns, _of_links(plan, path_mtu, used).rtt_ns)
    return dataclasses.replace(found, rtt_ns=max(LEAST_RTT_NS, rtt_ns + hosts_ns))


@functools.lru_cache(maxsize=16)  # every host of a plan, and every transport, needs the same
def _of_links(plan: Plan, path_mtu: int, others: tuple[tuple[str, int], ...]) -> Empty:
    """Of the hosts' first rails, or of these others; what hosts add is not in it."""
    numbers = dict(others)
    rails = {host.ports[numbers.get(host.name, 0)] for host in plan.hosts}
    trips = _Trips(plan, rails, path_mtu + HEADERS_BYTES, _CONTROL_BYTES)
    picoseconds, left = 0, dict.fromkeys(host.name for host in plan.hosts)
    while left:  # rails that are no one fabric
        reached = trips.of(next(iter(left)))
        one = max(reached, key=lambda other: reached[other])
        # Of a tree, and of what is even, the farthest of all.
        picoseconds = max(picoseconds, *trips.of(one).values())
        for host in reached:
            left.pop(host, None)
    limits = rates(plan)
    at_hosts = [limits[number] for number, *ends in plan.halves if rails.intersection(ends)]
    slowest_bps = min((rate for rate in at_hosts if rate), default=0)
    way_bps = _widest_way_bps(plan, rails, limits)
    return Empty(
        -(-picoseconds // 1000),
        slowest_bps,
        _deepest_ns(plan, path_mtu + HEADERS_BYTES),
        way_bps if way_bps < slowest_bps else 0,
        _shortest_bytes(plan, path_mtu + HEADERS_BYTES),
    )


def _widest_way_bps(plan: Plan, rails: Set[Port], limits: Mapping[int, int]) -> int:
    """The rate of the narrowest link on the widest path between any two hosts; 0: no limit.

    Links are joined from the fastest to the slowest (Kruskal), until two hosts are connected.
    """
    joined: dict[str, str] = {}

    def group_of(node: str) -> str:
        while node in joined:
            node = joined[node]
        return node

    hosts_in = collections.Counter(port.node for port in rails)
    both_ways = [
        (min(limits[number], limits[number + 1], key=lambda rate: rate or math.inf), near, far)
        for number, near, far in _used(plan, rails)
        if number % 2 == 0
    ]
    both_ways.sort(key=lambda each: each[0] or math.inf, reverse=True)
    for rate, near, far in both_ways:
        one, other = group_of(near.node), group_of(far.node)
        if one == other:
            continue
        if hosts_in[one] and hosts_in[other]:
            return rate
        joined[other] = one
        hosts_in[one] += hosts_in[other]
    return 0


def _used(plan: Plan, rails: Set[Port]) -> Iterator[Half]:
    """The directed links, but for those at ports of hosts that are not among `rails`."""
    hosts = {host.name for host in plan.hosts}
    for half in plan.halves:
        if not any(end.node in hosts and end not in rails for end in half[1:]):
            yield half


class _Trips:
    """Round trips between a host and every other: a long frame one way and a short one back.

    `rails`: the ports of hosts that are used.
    """

    def __init__(self, plan: Plan, rails: Set[Port], long_bytes: int, short_bytes: int) -> None:
        self._hosts = [host.name for host in plan.hosts]
        self._costs = [_costs(plan, length) for length in (long_bytes, short_bytes)]
        self._leaving: _Links = {node.name: [] for node in plan.nodes}
        self._coming: _Links = {node.name: [] for node in plan.nodes}
        for number, near, far in _used(plan, rails):
            self._leaving[near.node].append((number, far.node))
            self._coming[far.node].append((number, near.node))

    def of(self, host: str) -> dict[str, int]:
        """To each host that is reached, itself too; whichever of both sends the long frame."""
        long_to, short_to = (_times(host, self._leaving, costs) for costs in self._costs)
        long_from, short_from = (_times(host, self._coming, costs) for costs in self._costs)
        return {
            other: max(long_to[other] + short_from[other], long_from[other] + short_to[other])
            for other in self._hosts
            if other in long_to and other in long_from
        }


def _deepest_ns(plan: Plan, frame_bytes: int) -> int:
    """How long the slowest queue to drain holds a frame that finds it full."""
    drains = (
        -(-8 * limit * 10**9 // queue.rate_bps)
        for queue, limit in _limited(plan, frame_bytes)
        if queue.rate_bps
    )
    return max(drains, default=0)


def _shortest_bytes(plan: Plan, frame_bytes: int) -> int:
    return min((limit for _, limit in _limited(plan, frame_bytes)), default=0)


def _limited(plan: Plan, frame_bytes: int) -> Iterator[tuple[Queue, int]]:
    """Queues that always have a limit, and that limit in bytes."""
    for fault in plan.faults:
        queue = fault.effect
        if not isinstance(queue, Queue) or not fault.window.always:
            continue
        packets, size = queue.limit_packets, queue.limit_bytes
        limits = [size] if size is not None else []
        limits += [packets * frame_bytes] if packets is not None else []
        if limits:
            yield queue, min(limits)


@functools.lru_cache(maxsize=4)  # a run needs them before and behind it
def rates(plan: Plan) -> Mapping[int, int]:
    """Bits a second of every directed link, as long as its rule always acts; 0: no limit."""
    found = {number: 0 for number, _, _ in plan.halves}
    for fault in plan.faults:
        if isinstance(fault.effect, Queue) and fault.window.always:
            found[fault.directed_link] = fault.effect.rate_bps
    return MappingProxyType(found)


def _costs(plan: Plan, length_bytes: int) -> dict[int, int]:
    """Picoseconds that a frame of this length takes over each directed link."""
    delays = {number: 0 for number, _, _ in plan.halves}
    for fault in plan.faults:
        if isinstance(fault.effect, Delay) and fault.window.always:
            delays[fault.directed_link] = fault.effect.delay_ns * 1000
    limits = rates(plan)
    return {
        number: delay + (8 * length_bytes * _PICOSECONDS // limits[number] if limits[number] else 0)
        for number, delay in delays.items()
    }


def _times(start: str, links: _Links, costs: Mapping[int, int]) -> dict[str, int]:
    """The least time between `start` and every node, one way (Dijkstra)."""
    found: dict[str, int] = {}
    heap = [(0, start)]
    while heap:
        time, node = heapq.heappop(heap)
        if node in found:
            continue
        found[node] = time
        for number, other in links[node]:
            if other not in found:
                heapq.heappush(heap, (time + costs[number], other))
    return found
