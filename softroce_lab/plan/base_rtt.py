# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures of a plan's empty fabric: the base round trip time, rates of links, and queues.

Timers and windows follow from these figures (recovery/defaults.py). A rail is a host's n-th port,
counted from 0.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import heapq
import math
from collections.abc import Iterator, Mapping, Set
from types import MappingProxyType
from typing import TypeAlias

from softroce_lab.plan.effects import Delay, Down, Effect, Queue, Reorder
from softroce_lab.plan.plan import Half, Plan, Port

Rails: TypeAlias = Mapping[str, tuple[int, ...]]
"""By host's name, the rails that it uses, its own first. Hosts that are not there use rail 0."""
FIRST_RAILS: Rails = MappingProxyType({})

# Ethernet, IPv4, UDP, BTH, DETH, the lab's header, ICRC.
HEADERS_BYTES = 14 + 20 + 8 + 12 + 8 + 40 + 4
_CONTROL_BYTES = 200
_PICOSECONDS = 10**12

LEAST_RTT_NS = 1000
"""The least base RTT. In a fabric without delays timers would otherwise end at each nanosecond."""

MOST_WINDOW_PACKETS = 1 << 20
"""The most packets that the engine can have in flight to a peer (kMostInFlight in peer.hpp)."""

_Links = dict[str, list[tuple[int, str]]]
"""By node: (number of a directed link, node at its other end)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Empty:
    """The fabric without other traffic."""

    rtt_ns: int  # base RTT: a full packet one way, a small one back, between the farthest hosts
    rate_bps: int  # rate of the slowest link at a host, in either direction; 0: none has a rate
    buffer_ns: int  # time in which the slowest full queue drains; 0: no queue has a limit
    way_bps: int = 0  # of the narrowest pair of hosts (`_narrowest_way_bps`); 0: `rate_bps`
    room_bytes: int = 0  # limit of the shortest queue; 0: no queue has a limit

    def window_packets(self, path_mtu: int, *, one_path: bool = False, machine_ns: int = 0) -> int:
        """The constant window of a sender: 1.5 bandwidth-delay products and eight packets.

        One product keeps the path full. The rest covers the delay of reports: a quarter of a round
        trip, or 64 packets. The window is at most what the path and the shortest queue hold, at
        least 16 packets, and 1024 packets if no link at a host has a rate. `one_path`: all packets
        to a peer take the same path. `machine_ns`: time that a machine adds to the round trip.
        """
        if not self.rate_bps:
            return 1024
        frame_bytes = path_mtu + HEADERS_BYTES
        rate_bps = self.way_bps if one_path and self.way_bps else self.rate_bps

        def product(rtt_ns: int) -> int:
            return -(-rate_bps * rtt_ns // (8 * frame_bytes * 10**9))

        products = product(self.rtt_ns + machine_ns)
        window = products + products // 2 + 8
        if self.room_bytes:
            window = min(window, product(self.rtt_ns) + self.room_bytes // frame_bytes)
        return min(max(window, 16), MOST_WINDOW_PACKETS)


def of(plan: Plan, path_mtu: int, hosts_ns: int = 0, rails: Rails = FIRST_RAILS) -> Empty:
    """The empty fabric as the hosts' rails see it.

    `hosts_ns`: time that the hosts at both ends add to a round trip. `rtt_ns` is the longest over
    all rails that hosts use; the other figures are of their first ones only.
    """
    fabrics = []
    for at in range(max(map(len, rails.values()), default=1)):
        used = {host: each[at] if at < len(each) else each[0] for host, each in rails.items()}
        chosen = tuple(sorted((host, rail) for host, rail in used.items() if rail))
        fabrics.append(_of_links(plan, path_mtu, chosen))
    rtt_ns = max(each.rtt_ns for each in fabrics) + hosts_ns
    return dataclasses.replace(fabrics[0], rtt_ns=max(LEAST_RTT_NS, rtt_ns))


@functools.lru_cache(maxsize=16)  # every host of a plan, and every transport, needs the same
def _of_links(plan: Plan, path_mtu: int, chosen: tuple[tuple[str, int], ...]) -> Empty:
    """Without the time of hosts. `chosen`: (host, rail) of hosts that do not use the first rail."""
    numbers = dict(chosen)
    rails = {host.ports[numbers.get(host.name, 0)] for host in plan.hosts}
    trips = _Trips(plan, rails, path_mtu + HEADERS_BYTES, _CONTROL_BYTES)
    picoseconds, left = 0, dict.fromkeys(host.name for host in plan.hosts)
    while left:  # once for each set of hosts that are connected
        reached = trips.of(next(iter(left)))
        # The host farthest from the farthest one: the longest trip in a tree or an even fabric.
        farthest = max(reached, key=lambda other: reached[other])
        picoseconds = max(picoseconds, *trips.of(farthest).values())
        for host in reached:
            left.pop(host, None)
    frame_bytes = path_mtu + HEADERS_BYTES
    limited = list(_limited(plan, frame_bytes))
    drains = (-(-8 * limit * 10**9 // rate) for rate, limit in limited if rate)
    limits = rates(plan)
    at_hosts = [limits[number] for number, *ends in plan.halves if rails.intersection(ends)]
    slowest_bps = min((rate for rate in at_hosts if rate), default=0)
    way_bps = _narrowest_way_bps(plan, rails, limits)
    return Empty(
        -(-picoseconds // 1000),
        slowest_bps,
        max(drains, default=0),
        way_bps if way_bps < slowest_bps else 0,
        min((limit for _, limit in limited), default=0),
    )


def _narrowest_way_bps(plan: Plan, rails: Set[Port], limits: Mapping[int, int]) -> int:
    """The rate of a pair's widest path, of the pair for which it is least; 0: no limit.

    Links are joined from the fastest to the slowest (Kruskal). The last link that connects hosts
    decides.
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
    narrowest_bps = 0
    for rate, near, far in both_ways:
        one, other = group_of(near.node), group_of(far.node)
        if one == other:
            continue
        if hosts_in[one] and hosts_in[other]:
            narrowest_bps = rate
        joined[other] = one
        hosts_in[one] += hosts_in[other]
    return narrowest_bps


def _used(plan: Plan, rails: Set[Port]) -> Iterator[Half]:
    """All directed links except those at ports of hosts that are not in `rails`."""
    hosts = {host.name for host in plan.hosts}
    for half in plan.halves:
        if not any(end.node in hosts and end not in rails for end in half[1:]):
            yield half


class _Trips:
    """Round trips between hosts, in ps: a long frame one way, a short one back.

    `rails`: the ports that hosts use.
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
        """By host that can be reached, `host` included: the longer trip of both directions."""
        long_to, short_to = (_times(host, self._leaving, costs) for costs in self._costs)
        long_from, short_from = (_times(host, self._coming, costs) for costs in self._costs)
        return {
            other: max(long_to[other] + short_from[other], long_from[other] + short_to[other])
            for other in self._hosts
            if other in long_to and other in long_from
        }


def _limited(plan: Plan, frame_bytes: int) -> Iterator[tuple[int, int]]:
    """(rate, limit in bytes) of each queue whose limit applies during the whole run."""
    for fault in plan.faults:
        queue = fault.effect
        if not isinstance(queue, Queue) or not fault.window.always:
            continue
        packets, size = queue.limit_packets, queue.limit_bytes
        limits = [size] if size is not None else []
        limits += [packets * frame_bytes] if packets is not None else []
        if limits:
            yield queue.rate_bps, min(limits)


@functools.lru_cache(maxsize=4)  # a run needs them before it starts and after it ends
def rates(plan: Plan) -> Mapping[int, int]:
    limits = {number: 0 for number, _, _ in plan.halves}
    for fault in plan.faults:
        if isinstance(fault.effect, Queue) and fault.window.always:
            limits[fault.directed_link] = fault.effect.rate_bps
    return MappingProxyType(limits)


def _costs(plan: Plan, length_bytes: int) -> dict[int, int]:
    """By directed link: picoseconds that a frame of this length takes."""
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
    """By node, the least time from or to `start`, one way (Dijkstra)."""
    times: dict[str, int] = {}
    heap = [(0, start)]
    while heap:
        time, node = heapq.heappop(heap)
        if node in times:
            continue
        times[node] = time
        for number, other in links[node]:
            if other not in times:
                heapq.heappush(heap, (time + costs[number], other))
    return times


_TABLE_MOST = 4
"""Deviates of netem's tables end at 32767/8192 (native/wire/jitter.hpp), rounded up."""


@functools.lru_cache(maxsize=4)  # every host of a plan needs the same
def lifetime_ns(plan: Plan, path_mtu: int) -> int:
    """The longest that a packet is on its way from one host to another, without time of hosts.

    No message is named as an earlier one was before all packets of that one have arrived or are
    lost: `packet_lifetime_ns` of recovery/defaults.py. The figure is an upper bound, this project's
    own: a route crosses no link twice, each link may hold a frame behind a full queue and add all
    its jitter, and rules count whenever they act.
    """
    frame_bytes = path_mtu + HEADERS_BYTES
    most = {number: [0, 0, 0] for number, _, _ in plan.halves}
    for fault in plan.faults:
        of_link = most[fault.directed_link]
        for part, kind in enumerate((Delay, Queue, Reorder)):
            # Of one kind the longest of all windows.
            if isinstance(fault.effect, kind):
                of_link[part] = max(of_link[part], _longest_ns(fault.effect, frame_bytes))
    longest = sorted((sum(parts) for parts in most.values()), reverse=True)
    return sum(longest[: _most_hops(plan)])


def _longest_ns(effect: Effect, frame_bytes: int) -> int:
    if isinstance(effect, Delay):
        deviates = 1 if effect.distribution == "uniform" else _TABLE_MOST
        return effect.delay_ns + deviates * effect.jitter_ns
    if isinstance(effect, Reorder):
        return effect.extra_ns
    if isinstance(effect, Queue) and effect.rate_bps:
        limits = [frame_bytes * (effect.limit_packets or 0), effect.limit_bytes or 0]
        return -(-8 * (max(limits) + frame_bytes) * 10**9 // effect.rate_bps)
    return 0


def _most_hops(plan: Plan) -> int:
    """Links of the longest route: shortest routes, and where links go down any without a circle.

    No two hosts are farther apart than twice what a node is from the farthest host.
    """
    if any(isinstance(fault.effect, Down) for fault in plan.faults):
        return len(plan.nodes)
    leaving: dict[str, list[str]] = {node.name: [] for node in plan.nodes}
    for _, near, far in plan.halves:
        leaving[near.node].append(far.node)
    hosts = {host.name for host in plan.hosts}
    starts = leaving[plan.hosts[0].name]  # a switch of each rail
    return 2 * max(_eccentricity(start, leaving, hosts) for start in starts)


def _eccentricity(start: str, leaving: dict[str, list[str]], hosts: set[str]) -> int:
    """Links to the farthest host that is reached from there; hosts forward nothing."""
    hops = {start: 0}
    queue = collections.deque([start])
    while queue:
        node = queue.popleft()
        for other in leaving[node] if node not in hosts or node == start else ():
            if other not in hops:
                hops[other] = hops[node] + 1
                queue.append(other)
    return max(hops[host] for host in hosts & hops.keys())
