# SPDX-License-Identifier: GPL-2.0-or-later
"""No RoCE frame of a lab vanishes uncounted: what enters each of its parts leaves it, or is named.

For a lab at rest, in which nothing but RoCE was sent meanwhile. What the machine lost is counted
apart: that is no fault's doing, but it is not unexplained either. Of the frames that a link lost
the machine answers for as many as the kernel dropped at the link's two veths, by its own counters.
Those are complete with generic XDP, which labs prefer.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping

from pyroute2 import IPRoute

from softroce_lab.experiment.observation import Counts, WireCounts
from softroce_lab.fabric.lab import Lab
from softroce_lab.plan.plan import Node, Plan, Port

REST_S = 0.05  # without a change
PATIENCE_S = 20.0


@dataclasses.dataclass(frozen=True)
class Balance:
    """What does not add up, by place, and what the machine lost."""

    unexplained: dict[str, int]
    machine: dict[str, int]
    injected: int  # by rules and queues
    duplicated: int


@dataclasses.dataclass(frozen=True)
class Rest:
    """What the lab's parts counted while no frame moved, and what the kernel dropped, by place."""

    counts: Counts
    dropped: Mapping[str, int]

    def __sub__(self, before: Rest) -> Rest:
        dropped = {place: n - before.dropped[place] for place, n in self.dropped.items()}
        return Rest(self.counts - before.counts, dropped)


def at_rest(lab: Lab) -> Rest:
    """What all parts counted, once no frame moves any more."""
    deadline = time.monotonic() + PATIENCE_S
    before = Counts.of(lab)
    while time.monotonic() < deadline:
        time.sleep(REST_S)
        now = Counts.of(lab)
        if now.ports == before.ports and not now.wire.stage.held:
            return Rest(now, dict(_dropped(lab)))
        before = now
    raise AssertionError(f"the lab does not come to rest: {before.wire.stage}")


def balance(plan: Plan, counted: Rest, sent: Mapping[str, int]) -> Balance:
    """Of what was counted between two rests; `sent` is what each host put on its first link."""
    counts = counted.counts
    places = {
        **dict(_uplinks(plan, counts, sent)),
        **dict(_hops(plan, counts)),
        **{f"in {n.name}": _in_switch(n, plan, counts) for n in plan.nodes if n.kind == "switch"},
        **dict(_in_stage(plan, counts.wire)),
    }
    machine = {
        **{f"port {i}": port.lost_by_emulator for i, port in counts.wire.ports.items()},
        **{f"to the stage at {i}": port.wire_gone for i, port in counts.ports.items()},
        **{place: min(max(n, 0), counted.dropped.get(place, 0)) for place, n in places.items()},
    }
    links = counts.wire.links.values()
    by_rules = sum(p.injected_rx_roce + p.injected_tx_roce for p in counts.ports.values())
    unexplained = {place: n - machine.get(place, 0) for place, n in places.items()}
    return Balance(
        {place: n for place, n in unexplained.items() if n},
        {place: n for place, n in machine.items() if n},
        by_rules + sum(link.dropped_limit for link in links),
        sum(link.duplicated for link in links),
    )


def _dropped(lab: Lab) -> Iterator[tuple[str, int]]:
    """What the kernel dropped on each link: where it left the near veth, or came to the far one."""
    at: dict[int, tuple[int, int]] = {}
    for node in lab.plan.nodes:
        with lab.enter(node.name), IPRoute() as netlink:
            for veth in netlink.get_links():
                stats = veth.get("stats64")
                at[veth["index"]] = stats["tx_dropped"], stats["rx_dropped"]
    for _, near, far in lab.plan.halves:
        yield _on(near, far), at[near.ifindex][0] + at[far.ifindex][1]


def _on(near: Port, far: Port) -> str:
    return f"on {near.node}->{far.node}"


def _is_host(plan: Plan, node: str) -> bool:
    return plan.node(node).kind == "host"


def _uplinks(plan: Plan, counts: Counts, sent: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """What hosts sent less what their switches saw."""
    for host, frames in sent.items():
        port = plan.node(host).ports[0]
        (far,) = (far for link in plan.links for _, near, far in link.halves if near == port)
        yield _on(port, far), frames - counts.ports[far.ifindex].rx_roce


def _hops(plan: Plan, counts: Counts) -> Iterator[tuple[str, int]]:
    """What left a switch, by itself or through the stage, less what the far end saw."""
    for link in plan.links:
        for number, near, far in link.halves:
            if not _is_host(plan, near.node):
                wire = counts.wire.links.get(number)
                left = counts.ports[near.ifindex].tx_roce + (wire.released if wire else 0)
                yield _on(near, far), left - counts.ports[far.ifindex].rx_roce


def _in_switch(switch: Node, plan: Plan, counts: Counts) -> int:
    """What a switch's programs saw less what became of it.

    A frame that a rule takes behind a shaped uplink is counted by the rule as it goes to the stage,
    and by the stage as gone once it has crossed the uplink. Between the two the uplink may have
    dropped it, or copied it: the counts can differ by so much, and not more.
    """
    left, dropped, copied = 0, 0, 0
    for port in switch.ports:
        at = counts.ports[port.ifindex]
        left += at.rx_roce - at.injected_rx_roce - at.tx_roce - at.injected_tx_roce
        left -= at.to_wire + at.wire_gone + at.no_route + at.ttl_exceeded + at.spoofed + at.unwired
    for number, near, far in (half for link in plan.links for half in link.halves):
        wire = counts.wire.links.get(number)
        if wire and near.node == switch.name:
            left += wire.gone
        elif wire and far.node == switch.name and _is_host(plan, near.node):
            dropped, copied = dropped + wire.dropped_limit, copied + wire.duplicated
    return max(left - copied, 0) + min(left + dropped, 0)


def _in_stage(plan: Plan, wire: WireCounts) -> Iterator[tuple[str, int]]:
    """Each of its links on its own, and the way of frames from ports to links."""
    uplinks = {n for link in plan.links for n, near, _ in link.halves if _is_host(plan, near.node)}
    on_links = 0
    for number, link in wire.links.items():
        lost = link.dropped_limit + link.gone + link.lost_port_down + link.tx_failed
        yield f"stage's link {number}", link.arrived + link.duplicated - link.released - lost
        on_links += link.arrived - (link.released if number in uplinks else 0)
    taken = sum(port.received - port.unknown for port in wire.ports.values())
    yield "in the stage", taken - on_links
