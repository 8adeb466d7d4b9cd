# SPDX-License-Identifier: GPL-2.0-or-later
"""Raw model -> plan: every name, index, address and route decided, every contradiction refused."""

from __future__ import annotations

import collections
import ipaddress
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from softroce_lab.faults.resolve import FaultRules, LinkFaults, arm
from softroce_lab.inputs.validation import did_you_mean
from softroce_lab.inputs.yaml_source import NOWHERE, Place, Source
from softroce_lab.plan.effects import Queue
from softroce_lab.plan.plan import Guest, Link, Node, NodeKind, Plan, Port, Route
from softroce_lab.topology import routing
from softroce_lab.topology.model import (
    MAX_EQUAL_COST_PORTS,
    Endpoint,
    Graph,
    NodeSpec,
    TopologyFile,
    check_lab_name,
    check_seed,
    expand,
)
from softroce_lab.topology.routing import Neighbours
from softroce_lab.topology.shapes import MAX_PORTS, MAX_RAILS

FIRST_IFINDEX = 100  # above what a fresh namespace holds
GUEST_MEMORY_BYTES = 1 << 30

Kinds: TypeAlias = Mapping[str, NodeKind]
FarEnds: TypeAlias = Mapping[Port, Port]  # a port: the one at the other end of its link


def resolve(
    raw: TopologyFile,
    source: Source = NOWHERE,
    *,
    name: str | None = None,
    seed: int | None = None,
    with_routes: bool = True,
) -> Plan:
    """Resolve a topology; `name` and `seed` override the file's.

    Without routes a plan of thousands of hosts is small; the simulator finds its own.

    Raises UserError, with the place in `source`, for what contradicts itself or is not connected.
    """
    name = raw.name if name is None else check_lab_name(name)
    seed = raw.seed if seed is None else check_seed(seed)
    graph = expand(raw.topology)
    kinds = _kinds(graph, source)
    links = _links(graph, kinds, source)
    neighbours = routing.neighbours(kinds, links)
    _check_reachable(kinds, neighbours, source)
    nodes = _nodes(name, kinds, neighbours, _guests(graph, kinds, source))
    far_ends = {near: far for link in links for _, near, far in link.halves}
    switches = [name for name, kind in kinds.items() if kind == "switch"]
    among = routing.neighbours(switches, links)  # hosts carry no transit traffic
    _check_rails_meet(nodes, far_ends, among, source)
    plan = Plan(
        name=name,
        seed=seed,
        mtu=raw.mtu,
        load_balancing=raw.lb,
        nodes=nodes,
        links=links,
        routes=tuple(_routes(nodes, links, among, source)) if with_routes else (),
        faults=(),
        digest="",
    )
    on_links = LinkFaults(tuple(graph.links or ()), source)
    plan = arm(plan, on_links, FaultRules(tuple(raw.faults), source))
    if with_routes:
        _check_adaptive(plan, source)
    return plan


def _check_adaptive(plan: Plan, source: Source) -> None:
    if plan.load_balancing != "adaptive":
        return
    choices = {port for route in plan.routes if len(route.ports) > 1 for port in route.ports}
    senders = {number: near for number, near, _ in plan.halves}
    queues = (f.directed_link for f in plan.faults if isinstance(f.effect, Queue))
    if choices.isdisjoint(senders[directed] for directed in queues):
        what = "lb: adaptive chooses the emptiest queue, and no link to choose has one"
        hint = "give the links between switches a rate, such as rate: 1Gbit"
        raise source.error(("lb",), what, hint=hint)


def _kinds(graph: Graph, source: Source) -> Kinds:
    kinds: dict[str, NodeKind] = {}
    for name, spec in (graph.nodes or {}).items():
        kind = (spec or NodeSpec()).kind or graph.defaults.kind
        if kind is None:
            raise source.error(
                ("topology", "nodes", name),
                f"node {name!r} has no kind",
                hint="kind: host, kernel or switch, here or under defaults",
                at_key=True,
            )
        kinds[name] = kind
    if not _hosts(kinds):
        raise source.error(("topology", "nodes"), "the topology has no hosts", at_key=True)
    return kinds


def _hosts(kinds: Kinds) -> list[str]:
    return [name for name, kind in kinds.items() if kind != "switch"]


def _guests(graph: Graph, kinds: Kinds, source: Source) -> dict[str, Guest]:
    guests: dict[str, Guest] = {}
    for name, spec in (graph.nodes or {}).items():
        own = spec or NodeSpec()
        if kinds[name] == "kernel":
            specs = (own, graph.defaults)
            guests[name] = Guest(
                kernel=next((each.kernel for each in specs if each.kernel), "6.12"),
                memory_bytes=own.memory or graph.defaults.memory or GUEST_MEMORY_BYTES,
                cpus=own.cpus or graph.defaults.cpus or 1,
            )
        elif keys := own.guest_keys():
            place = ("topology", "nodes", name, keys[0])
            what = f"{keys[0]!r} is for kernel hosts, and {name!r} is a {kinds[name]}"
            raise source.error(place, what, hint="kind: kernel", at_key=True)
    if not guests and (keys := graph.defaults.guest_keys()):
        what = f"{keys[0]!r} is for kernel hosts, and there is none"
        raise source.error(
            ("topology", "defaults", keys[0]), what, hint="kind: kernel", at_key=True
        )
    return guests


def _links(graph: Graph, kinds: Kinds, source: Source) -> tuple[Link, ...]:
    specs = graph.links or ()
    if 2 * len(specs) > MAX_PORTS:
        what = f"{len(specs)} links make more than {MAX_PORTS} ports"
        raise source.error(("topology", "links"), what, at_key=True)
    _check_endpoints([spec.endpoints for spec in specs], kinds, source)
    numbers = itertools.count(FIRST_IFINDEX)
    addresses = _Addresses(kinds)
    ports = (
        [_port(end, next(numbers), addresses.next(end.node)) for end in spec.endpoints]
        for spec in specs
    )
    return tuple(Link(index, a, b) for index, (a, b) in enumerate(ports))


class _Addresses:
    """Deals out 10.RAIL.0.N: N counts the hosts from 1, RAIL the links of each host from 0.

    MAX_PORTS keeps N within the 16 bits that a rail's network has for it.
    """

    def __init__(self, kinds: Kinds) -> None:
        self._number = {name: number for number, name in enumerate(_hosts(kinds), 1)}
        self._rails: collections.Counter[str] = collections.Counter()

    def next(self, node: str) -> str | None:
        """The address of the node's next port; None at a switch."""
        if node not in self._number:
            return None
        rail = self._rails[node]
        self._rails[node] += 1
        return str(ipaddress.IPv4Network((f"10.{rail}.0.0", 16))[self._number[node]])


def _port(end: Endpoint, ifindex: int, address: str | None) -> Port:
    mac = (0x0253 << 32 | ifindex).to_bytes(6, "big").hex(":")
    return Port(end.node, end.port, ifindex, mac, address)


def _check_endpoints(ends: Sequence[Sequence[Endpoint]], kinds: Kinds, source: Source) -> None:
    """Refuse unknown nodes, interfaces used twice, and links that no lab can have."""
    used: dict[Endpoint, int] = {}
    for i, (a, b) in enumerate(ends):
        place: Place = ("topology", "links", i, "endpoints")
        for j, end in enumerate((a, b)):
            if end.node not in kinds:
                near = did_you_mean(end.node, kinds)
                raise source.error((*place, j), f"unknown node {end.node!r}", hint=near)
            if end in used:
                first = source.mark(("topology", "links", used[end]))
                hint = f"first by the link in line {first.line}" if first else None
                raise source.error((*place, j), f"interface {end} is used twice", hint=hint)
            used[end] = i
        if a.node == b.node:
            raise source.error(place, f"the link joins {a.node!r} to itself")
        if "switch" not in (kinds[a.node], kinds[b.node]):
            what = f"the link joins two hosts, {a.node!r} and {b.node!r}"
            raise source.error(place, what, hint="put a switch between them")
    _check_rails(ends, kinds, source)


def _check_rails(ends: Sequence[Sequence[Endpoint]], kinds: Kinds, source: Source) -> None:
    rails: collections.Counter[str] = collections.Counter()
    for i, pair in enumerate(ends):
        for j, end in enumerate(pair):
            rails[end.node] += kinds[end.node] != "switch"
            if rails[end.node] > MAX_RAILS:
                what = f"host {end.node!r} has more than {MAX_RAILS} links"
                raise source.error(("topology", "links", i, "endpoints", j), what)


def _check_reachable(kinds: Kinds, neighbours: Neighbours, source: Source) -> None:
    for name, ports in neighbours.items():
        if not ports:
            place = ("topology", "nodes", name)
            raise source.error(place, f"{kinds[name]} {name!r} has no link", at_key=True)
    first = next(iter(kinds))
    reached = routing.distances([first], neighbours)
    for name in kinds:
        if name not in reached:
            place = ("topology", "nodes", name)
            what = f"the topology is not connected: no path between {first!r} and {name!r}"
            raise source.error(place, what, at_key=True)


def _nodes(
    lab: str, kinds: Kinds, neighbours: Neighbours, guests: Mapping[str, Guest]
) -> tuple[Node, ...]:
    tiers = routing.distances(_hosts(kinds), neighbours)
    return tuple(
        Node(
            index=index,
            name=name,
            kind=kind,
            namespace=f"{lab}-{name}",
            tier=tiers[name],
            ports=tuple(port for port, _ in neighbours[name]),
            guest=guests.get(name),
        )
        for index, (name, kind) in enumerate(kinds.items())
    )


def _check_rails_meet(
    nodes: Sequence[Node], far_ends: FarEnds, among: Neighbours, source: Source
) -> None:
    """The n-th ports of all hosts must reach each other; different rails need not."""
    hosts = [node for node in nodes if node.is_host]
    for rail in range(MAX_RAILS):
        ports = [host.ports[rail] for host in hosts if rail < len(host.ports)]
        reached = routing.distances([far_ends[port].node for port in ports[:1]], among)
        for port in ports:
            if far_ends[port].node not in reached:
                what = f"no switches lead from {ports[0]} to {port}, the same rail of their hosts"
                hint = "a host's rails are its links, in their order; hosts pass nothing on"
                place = ("topology", "nodes", port.node)
                raise source.error(place, what, hint=hint, at_key=True)


def _routes(
    nodes: Sequence[Node], links: Sequence[Link], among: Neighbours, source: Source
) -> Iterator[Route]:
    """UserError if a route has too many next hops."""
    rails = [port for node in nodes if node.is_host for port in node.ports]
    for rail, route in routing.routes(rails, links, among):
        _check_choice(route.node, rail, route.ports, source)
        yield route


def _check_choice(switch: str, rail: Port, ports: Sequence[Port], source: Source) -> None:
    if len(ports) > MAX_EQUAL_COST_PORTS:
        what = f"{len(ports)} equal-cost ports lead from {switch!r} to {rail.node!r}"
        hint = f"a switch chooses among {MAX_EQUAL_COST_PORTS} at most"
        raise source.error(("topology",), what, hint=hint, at_key=True)
