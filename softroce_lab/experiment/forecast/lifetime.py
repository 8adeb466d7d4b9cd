# SPDX-License-Identifier: GPL-2.0-or-later
"""The longest that a packet is on its way from one host to another, in a plan's fabric.

No message is named as an earlier one was before all packets of that one have arrived or are lost:
`packet_lifetime_ns` of recovery/defaults.py. The figure is an upper bound, this project's own: a
route crosses no link twice, each link may hold a frame behind a full queue and add all its jitter,
and rules count whenever they act.
"""

from __future__ import annotations

import functools
from collections import deque

from softroce_lab.experiment.forecast.base_rtt import HEADERS_BYTES
from softroce_lab.plan.effects import Delay, Down, Effect, Queue, Reorder
from softroce_lab.plan.plan import Plan

_TABLE_MOST = 4
"""Deviates of netem's tables end at 32767/8192 (native/wire/jitter.hpp), rounded up."""
_NS = 10**9


@functools.lru_cache(maxsize=4)  # every host of a plan needs the same
def of(plan: Plan, path_mtu: int) -> int:
    """Nanoseconds; what hosts add is not in it."""
    frame_bytes = path_mtu + HEADERS_BYTES
    most = {number: [0] * len(_PARTS) for number, _, _ in plan.halves}
    for fault in plan.faults:
        of_link = most[fault.directed_link]
        for part, kind in enumerate(_PARTS):  # of one kind the longest of all windows
            if isinstance(fault.effect, kind):
                of_link[part] = max(of_link[part], _longest_ns(fault.effect, frame_bytes))
    longest = sorted((sum(parts) for parts in most.values()), reverse=True)
    return sum(longest[: _most_hops(plan)])


_PARTS = (Delay, Queue, Reorder)


def _longest_ns(effect: Effect, frame_bytes: int) -> int:
    if isinstance(effect, Delay):
        deviates = 1 if effect.distribution == "uniform" else _TABLE_MOST
        return effect.delay_ns + deviates * effect.jitter_ns
    if isinstance(effect, Reorder):
        return effect.extra_ns
    if isinstance(effect, Queue) and effect.rate_bps:
        limits = [frame_bytes * (effect.limit_packets or 0), effect.limit_bytes or 0]
        return -(-8 * (max(limits) + frame_bytes) * _NS // effect.rate_bps)
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
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for other in leaving[node] if node not in hosts or node == start else ():
            if other not in hops:
                hops[other] = hops[node] + 1
                queue.append(other)
    return max(hops[host] for host in hosts & hops.keys())
