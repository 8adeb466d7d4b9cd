# SPDX-License-Identifier: GPL-2.0-or-later
"""What a plan's fabric does to one packet when it is empty: the base round trip, and the line rate.

Timers and windows on the virtual clock follow from it (recovery/defaults.py).
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Mapping

from softroce_lab.faults.effects import Delay, Queue
from softroce_lab.topology.plan import Plan, Port

_HEADERS_BYTES = 14 + 20 + 8 + 12 + 8 + 40 + 4  # Ethernet to the lab's header, and the ICRC
_CONTROL_BYTES = 200
_PICOSECONDS = 10**12

LEAST_RTT_NS = 1000
"""Timers are not made for less: where nothing takes time, they would be due at each nanosecond."""


@dataclasses.dataclass(frozen=True, slots=True)
class Empty:
    """The fabric without other traffic."""

    rtt_ns: int  # a full packet there and a small one back, between the hosts farthest apart
    rate_bps: int  # of the slowest link at a host; 0: nothing limits it

    def window_packets(self, path_mtu: int) -> int:
        """One bandwidth-delay product, and half as much again for reports that wait.

        A sender hears of arrivals up to a quarter of a round trip late, or 64 packets.
        """
        if not self.rate_bps:
            return 1024
        bits = 8 * (path_mtu + _HEADERS_BYTES)
        product = -(-self.rate_bps * self.rtt_ns // (bits * 10**9))
        return min(max(product + product // 2 + 8, 16), 1 << 14)


def of(plan: Plan, path_mtu: int, hosts_ns: int = 0) -> Empty:
    """Of the hosts' first rails; `hosts_ns` is what the hosts at both ends add to a round trip.

    The round trip is no less than `LEAST_RTT_NS`.
    """
    costs = _costs(plan, path_mtu + _HEADERS_BYTES), _costs(plan, _CONTROL_BYTES)
    start = plan.hosts[0].ports[0].node
    there, back = (_farthest(plan, start, each) for each in costs)
    rails = {host.ports[0] for host in plan.hosts}
    rates = _rates(plan)
    at_hosts = [rates[number] for number, near, _ in plan.halves if near in rails]
    limited = [rate for rate in at_hosts if rate]
    rtt_ns = -(-(there + back) // 1000) + hosts_ns
    return Empty(max(LEAST_RTT_NS, rtt_ns), min(limited, default=0))


def _rates(plan: Plan) -> dict[int, int]:
    found = {number: 0 for number, _, _ in plan.halves}
    for fault in plan.faults:
        if isinstance(fault.effect, Queue) and fault.window.always:
            found[fault.directed_link] = fault.effect.rate_bps
    return found


def _costs(plan: Plan, length_bytes: int) -> dict[int, int]:
    """Picoseconds that a frame of this length takes over each directed link."""
    delays = {number: 0 for number, _, _ in plan.halves}
    for fault in plan.faults:
        if isinstance(fault.effect, Delay) and fault.window.always:
            delays[fault.directed_link] = fault.effect.delay_ns * 1000
    rates = _rates(plan)
    return {
        number: delay + (8 * length_bytes * _PICOSECONDS // rates[number] if rates[number] else 0)
        for number, delay in delays.items()
    }


def _farthest(plan: Plan, start: str, costs: Mapping[int, int]) -> int:
    """The time to the host that is the farthest away."""
    times = _times(plan, start, costs)
    return max(times[host.name] for host in plan.hosts)


def _times(plan: Plan, start: str, costs: Mapping[int, int]) -> dict[str, int]:
    """The least time from `start` to every node (Dijkstra)."""
    leaving: dict[str, list[tuple[int, Port]]] = {node.name: [] for node in plan.nodes}
    for number, near, far in plan.halves:
        leaving[near.node].append((costs[number], far))
    found: dict[str, int] = {}
    heap = [(0, start)]
    while heap:
        time, node = heapq.heappop(heap)
        if node in found:
            continue
        found[node] = time
        for cost, far in leaving[node]:
            if far.node not in found:
                heapq.heappush(heap, (time + cost, far.node))
    return found
