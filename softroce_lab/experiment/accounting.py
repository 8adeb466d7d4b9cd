# SPDX-License-Identifier: GPL-2.0-or-later
"""Whose loss was it? Conservation of RoCE frames over every link, and at every host's socket.

What the near end handed to a link less what the far end's program saw is what the emulator lost;
a host's frames are handed to its uplink by its socket, and counted by its process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from softroce_lab.fabric.xdp_layout import PortCounters
from softroce_lab.telemetry.links import LinkFigures, PortFigures
from softroce_lab.topology.plan import Plan, Port


class Accounts:
    """What a lab's ports counted in one run, by ifindex, and what each host process said."""

    def __init__(
        self,
        plan: Plan,
        before: Mapping[int, PortCounters],
        after: Mapping[int, PortCounters],
        hosts: Mapping[str, dict[str, Any]],
    ) -> None:
        self._plan = plan
        self._counted = {ifindex: after[ifindex] - before[ifindex] for ifindex in after}
        self._hosts = hosts

    def links(self) -> list[LinkFigures]:
        """Every directed link."""
        halves = (half for link in self._plan.links for half in link.halves)
        return [self._link(number, near, far) for number, near, far in halves]

    def _link(self, number: int, near: Port, far: Port) -> LinkFigures:
        at_near, at_far = self._counted[near.ifindex], self._counted[far.ifindex]
        # The fate of a host's frames is decided where its uplink ends, a switch's where it begins.
        from_host = self._plan.node(near.node).kind == "host"
        decides = at_far if from_host else at_near
        sent = self._sent(near.node, at_far.rx_roce) if from_host else at_near.tx_roce
        return LinkFigures(
            directed_link=number,
            name=f"{near.node}->{far.node}",
            sent=sent,
            injected_drops=at_far.injected_rx_roce if from_host else at_near.injected_tx_roce,
            received=at_far.rx_roce,
            emulator_drops=sent - at_far.rx_roce,
            records_lost=decides.drop_log_lost + decides.capture_lost,
        )

    def _sent(self, host: str, arrived: int) -> int:
        """Of a host without a process no more is known than what arrived."""
        return int(self._hosts[host]["frames_sent"]) if host in self._hosts else arrived

    def ports(self) -> list[PortFigures]:
        """Every host that had a process."""
        return [self._port(name, said) for name, said in self._hosts.items()]

    def _port(self, name: str, said: dict[str, Any]) -> PortFigures:
        statistics = said["port"]
        return PortFigures(
            node=name,
            handed=self._counted[self._plan.node(name).ports[0].ifindex].to_xsk,
            taken=said["frames_received"],
            emulator_drops=statistics["rx_dropped"] + statistics["rx_ring_full"],
        )
