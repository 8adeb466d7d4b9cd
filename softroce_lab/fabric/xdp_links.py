# SPDX-License-Identifier: GPL-2.0-or-later
"""Conservation of RoCE frames on each directed link: what rules dropped, what the emulator lost."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from softroce_lab.fabric.xdp import directed_links
from softroce_lab.fabric.xdp_layout import PortCounters
from softroce_lab.topology.plan import Plan


@dataclasses.dataclass(frozen=True, slots=True)
class LinkCount:
    """RoCE frames on one directed link."""

    directed_link: int
    near: str  # nodes
    far: str
    sent: int  # onto the veth: a host's before the rules of its link, a switch's after them
    received: int  # by the program at the far end
    injected: int  # dropped by the link's rules

    @property
    def emulator_drops(self) -> int:
        """Frames that the veth itself lost; negative where `sent` was counted too early."""
        return self.sent - self.received


def count_links(
    plan: Plan, counters: Mapping[int, PortCounters], host_sent: Mapping[str, int]
) -> Iterator[LinkCount]:
    """Every directed link's count, from ports' counters of one span of time.

    `host_sent` says how many RoCE frames each host process sent in that span; a host that is
    missing there sent none.
    """
    kinds = {node.name: node.kind for node in plan.nodes}
    for link, near, far in directed_links(plan.links):
        at_near, at_far = counters[near.ifindex], counters[far.ifindex]
        from_host = kinds[near.node] == "host"
        yield LinkCount(
            directed_link=link,
            near=near.node,
            far=far.node,
            sent=host_sent.get(near.node, 0) if from_host else at_near.tx_roce,
            received=at_far.rx_roce,
            injected=at_far.injected_rx_roce if from_host else at_near.injected_tx_roce,
        )
