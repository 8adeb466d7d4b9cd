# SPDX-License-Identifier: GPL-2.0-or-later
"""The topologies that come with the lab: what each of them promises."""

import collections
import functools
import itertools

import pytest

from softroce_lab import paths, topology
from softroce_lab.plan.effects import Delay, Queue
from softroce_lab.plan.plan import Plan, Port

SHIPPED = sorted(file.stem for file in paths.TOPOLOGIES.glob("*.yaml"))

# Nodes, links, and the numbers of paths between two hosts, with how many (ordered) pairs have them.
PROMISED = {
    "clos": (48, 56, {1: 32 * 3, 2: 32 * 12, 4: 32 * 16}),
    "dual-rail": (12, 16, {1: 4, 2: 8}),
    "dumbbell": (10, 9, {1: 56}),
    "fat-tree-k4": (36, 48, {1: 16, 2: 32, 4: 192}),
    "kernel-peer": (3, 2, {1: 2}),
    "kernel-two": (4, 3, {1: 6}),
    "kernel-rails": (4, 4, {1: 2}),
    "leaf-spine": (8, 8, {1: 4, 2: 8}),
    "leaf-spine-adaptive": (10, 12, {1: 4, 4: 8}),
    "parallel-paths": (8, 10, {4: 2}),
    "path": (5, 4, {1: 2}),
    "star-100": (101, 100, {1: 9900}),
    "two-hosts": (3, 2, {1: 2}),
    "two-sites": (18, 21, {1: 8, 2: 16, 4: 32}),
}


def paths_between(plan: Plan) -> dict[tuple[str, str, int], int]:
    """How many paths the routes allow from each host to each other, by their rail."""
    far = {near: end for link in plan.links for _, near, end in link.halves}
    routes = {(route.node, route.destination): route.ports for route in plan.routes}

    @functools.cache
    def count(arrival: Port, destination: Port) -> int:
        if arrival == destination:
            return 1
        onward = routes[arrival.node, f"{destination.address}/32"]
        return sum(count(far[port], destination) for port in onward)

    return {
        (a.name, b.name, rail): count(far[one], two)
        for a, b in itertools.permutations(plan.hosts, 2)
        for rail, (one, two) in enumerate(zip(a.ports, b.ports, strict=True))
    }


@pytest.mark.parametrize("name", SHIPPED)
def test_every_pair_of_hosts_has_the_promised_paths_on_every_rail(name: str) -> None:
    nodes, links, promised = PROMISED[name]
    plan = topology.load(name)
    assert plan.name == name
    assert (len(plan.nodes), len(plan.links)) == (nodes, links)
    by_rail: dict[int, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    for (_, _, rail), count in paths_between(plan).items():
        by_rail[rail][count] += 1
    assert list(by_rail) == list(range(2 if name in ("dual-rail", "kernel-rails") else 1))
    assert all(counts == promised for counts in by_rail.values())


def test_all_of_them_promise_something() -> None:
    assert sorted(PROMISED) == SHIPPED
    assert {file.suffix for file in paths.TOPOLOGIES.iterdir()} == {".yaml"}


def shaped_links(plan: Plan) -> set[tuple[str, str]]:
    """Which kinds of nodes (by their names' letters) links with a queue or a delay join."""
    shaped = {f.directed_link // 2 for f in plan.faults if isinstance(f.effect, Queue | Delay)}
    pairs = [(plan.links[i].a.node, plan.links[i].b.node) for i in shaped]
    return {(a.rstrip("0123456789-"), b.rstrip("0123456789-")) for a, b in pairs}


def test_what_is_shaped() -> None:
    assert shaped_links(topology.load("leaf-spine-adaptive")) == {("leaf", "spine")}
    assert shaped_links(topology.load("two-sites")) == {("border", "border")}
    assert shaped_links(topology.load("dumbbell")) == {("s", "s")}
