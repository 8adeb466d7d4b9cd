# SPDX-License-Identifier: GPL-2.0-or-later
"""Shortest paths: which ports of a switch lead nearer to each host's address."""

from __future__ import annotations

import collections
import functools
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from softroce_lab.plan.plan import Link, Plan, Port, Route

Neighbours: TypeAlias = Mapping[str, Sequence[tuple[Port, str]]]  # node: its ports and their peers


def salt(seed: int, switch: str) -> int:
    """A switch's hash key, from stable names: another switch changes no choice of this one."""
    digest = hashlib.sha256(f"{seed}/ecmp/{switch}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def neighbours(names: Iterable[str], links: Iterable[Link]) -> Neighbours:
    """Ports and peers of the nodes called `names`, over `links` whose ends are both among them.

    In the order of the links, which is that of their ports' ifindexes.
    """
    found: dict[str, list[tuple[Port, str]]] = {name: [] for name in names}
    for link in links:
        if link.a.node in found and link.b.node in found:
            found[link.a.node].append((link.a, link.b.node))
            found[link.b.node].append((link.b, link.a.node))
    return found


def distances(starts: Sequence[str], among: Neighbours) -> dict[str, int]:
    """Hops to the nearest of `starts`, by breadth-first search."""
    found = dict.fromkeys(starts, 0)
    queue = collections.deque(starts)
    while queue:
        node = queue.popleft()
        for _, peer in among[node]:
            if peer not in found:
                found[peer] = found[node] + 1
                queue.append(peer)
    return found


def next_hops(edge: str, among: Neighbours) -> dict[str, tuple[Port, ...]]:
    """Ports of every switch that reaches the switch `edge`, one hop nearer to it."""
    hops = distances([edge], among)
    return {
        switch: tuple(port for port, peer in among[switch] if hops[peer] < distance)
        for switch in among
        if (distance := hops.get(switch)) is not None
    }


def routes(
    rails: Iterable[Port], links: Sequence[Link], among: Neighbours
) -> Iterator[tuple[Port, Route]]:
    """All shortest next hops to each of the hosts' ports `rails`, from every switch that has some.

    `links` are all that are up, `among` the switches and the links between them. Hosts carry no
    transit traffic; switches of one plane know no way to the addresses of another.
    """
    far_ends = {near: far for link in links for _, near, far in link.halves}
    toward = functools.cache(lambda edge: next_hops(edge, among))
    for rail in rails:
        if (edge := far_ends.get(rail)) is not None:
            for switch, ports in {**toward(edge.node), edge.node: (edge,)}.items():
                yield rail, Route(switch, f"{rail.address}/32", ports)


def around(plan: Plan, down: Collection[int]) -> tuple[Route, ...]:
    """The plan's routes as they are without the links of these indexes.

    A route that is left without a port is one to nowhere. The equal-cost ports may be more than
    those of the plan; a switch chooses among the first 64 of them.
    """
    links = [link for link in plan.links if link.index not in down]
    among = neighbours((node.name for node in plan.nodes if node.kind == "switch"), links)
    rails = [port for host in plan.hosts for port in host.ports]
    left = {(r.node, r.destination): r for _, r in routes(rails, links, among)}
    return tuple(
        left.get((route.node, route.destination), Route(route.node, route.destination, ()))
        for route in plan.routes
    )
