# SPDX-License-Identifier: GPL-2.0-or-later
"""Whose loss was it? Conservation of frames over every link, from the counters before and after.

What the near end handed to a link less what the far end's program saw is what the emulator lost.
A host's frames are handed to its uplink by its socket and counted there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from softroce_lab.fabric.xdp_layout import PortCounters
from softroce_lab.telemetry.links import LinkFigures, PortFigures
from softroce_lab.topology.plan import Plan, Port

Counters = Mapping[int, PortCounters]  # by ifindex


class Accounts:
    """The counters of a lab's ports over one run."""

    def __init__(
        self, plan: Plan, before: Counters, after: Counters, hosts: Mapping[str, dict[str, Any]]
    ) -> None:
        self._plan = plan
        self._before = before
        self._after = after
        self._hosts = hosts  # what each host process said of itself

    def _gained(self, port: Port, *names: str) -> int:
        after, before = self._after[port.ifindex], self._before[port.ifindex]
        return sum(getattr(after, name) - getattr(before, name) for name in names)

    def links(self) -> list[LinkFigures]:
        """Every directed link."""
        halves = [half for link in self._plan.links for half in link.halves]
        return [self._link(number, near, far) for number, near, far in halves]

    def _link(self, number: int, near: Port, far: Port) -> LinkFigures:
        delivered = self._gained(far, "rx_roce")
        from_host = self._plan.node(near.node).kind == "host"
        if from_host:  # its fate is decided at the far end, behind the crossing
            offered = self._hosts.get(near.node, {}).get("frames_sent", 0)
            injected = self._gained(far, "injected_rx_roce")
            lost = offered - delivered
        else:
            handed = self._gained(near, "tx_roce")
            injected = self._gained(near, "injected_tx_roce")
            offered = handed + injected
            lost = handed - delivered
        return LinkFigures(
            directed_link=number,
            name=f"{near.node}->{far.node}",
            offered=offered,
            injected_drops=injected,
            delivered=delivered,
            emulator_drops=lost,
            records_lost=self._gained(near, "drop_log_lost", "capture_lost"),
        )

    def ports(self) -> list[PortFigures]:
        """Every host that had a process."""
        return [self._port(name, said) for name, said in self._hosts.items()]

    def _port(self, name: str, said: dict[str, Any]) -> PortFigures:
        statistics = said["port"]
        return PortFigures(
            node=name,
            handed=self._gained(self._plan.node(name).ports[0], "to_xsk"),
            taken=said["frames_received"],
            emulator_drops=statistics["rx_dropped"] + statistics["rx_ring_full"],
        )
