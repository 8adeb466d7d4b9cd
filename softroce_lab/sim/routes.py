# SPDX-License-Identifier: GPL-2.0-or-later
"""Routes as the simulated switches keep them: sets of equal-cost links, and which leads where.

The same shortest paths as `topology.routing.routes` finds, but for all hosts of an edge switch at
once: a fabric of thousands of hosts has as many routes as hosts times switches, and few different
ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt

from softroce_lab.plan.plan import Plan, Port
from softroce_lab.topology import routing

NO_GROUP = 2**32 - 1

Groups = tuple[list[list[int]], npt.NDArray[np.uint32]]
"""Sets of directed links, and for each host port the number of the set that leads to it."""


def groups(plan: Plan, ports: Mapping[Port, int], down: Collection[int] = ()) -> dict[str, Groups]:
    """The routes of each switch, without the links of the indexes in `down`.

    `ports` numbers the host ports, 0 ... len(ports) - 1.
    """
    links = [link for link in plan.links if link.index not in down]
    switches = [node.name for node in plan.nodes if node.kind == "switch"]
    among = routing.neighbours(switches, links)
    leaving = {near: number for link in links for number, near, _ in link.halves}
    far_ends = {near: far for link in links for _, near, far in link.halves}
    behind: dict[str, list[tuple[int, int]]] = {}  # of an edge switch: its host ports and links
    for port, number in ports.items():
        edge = far_ends.get(port)
        if edge is not None:
            behind.setdefault(edge.node, []).append((number, leaving[edge]))
    found = {name: _Table(len(ports)) for name in switches}
    for edge_name, hosts in behind.items():
        hosts_there = np.array([number for number, _ in hosts])
        for switch, out in routing.next_hops(edge_name, among).items():
            if switch != edge_name and out:
                found[switch].add([leaving[port] for port in out], hosts_there)
        for number, link in hosts:
            found[edge_name].add([link], np.array([number]))
    return {name: (table.groups, table.group_of_port) for name, table in found.items()}


class _Table:
    """The routes of one switch while they are found."""

    def __init__(self, ports: int) -> None:
        self.groups: list[list[int]] = []
        self.group_of_port = np.full(ports, NO_GROUP, dtype=np.uint32)
        self._numbers: dict[tuple[int, ...], int] = {}

    def add(self, links: list[int], ports: npt.NDArray[np.int64]) -> None:
        """These links lead to those ports."""
        number = self._numbers.setdefault(tuple(links), len(self.groups))
        if number == len(self.groups):
            self.groups.append(links)
        self.group_of_port[ports] = number
