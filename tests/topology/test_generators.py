# SPDX-License-Identifier: GPL-2.0-or-later
"""Generators expand to what one would have written."""

import collections
from fractions import Fraction

import pytest

from softroce_lab.faults.model import LinkImpairments
from softroce_lab.topology.model import Graph, TopologyFile, expand
from softroce_lab.topology.resolve import resolve
from softroce_lab.topology.shapes import (
    Clos,
    DualRail,
    Dumbbell,
    FatTree,
    Generator,
    LeafSpine,
    ParallelPaths,
    Shape,
    Star,
    TwoSites,
)


def links_of(graph: Graph) -> list[str]:
    return [" ".join(map(str, link.endpoints)) for link in graph.links or ()]


def shaped(shape: Generator) -> Graph:
    return expand(Graph(generator=shape))


def degrees(graph: Graph) -> dict[str, set[int]]:
    """How many ports nodes have, by the letters that their names begin with."""
    ports = collections.Counter(end.node for link in graph.links or () for end in link.endpoints)
    found: dict[str, set[int]] = collections.defaultdict(set)
    for name, count in ports.items():
        found[name.rstrip("0123456789-")].add(count)
    return found


def count(graph: Graph, word: str) -> int:
    return sum(name.rstrip("0123456789-") == word for name in graph.nodes or ())


def test_clos_has_the_same_oversubscription_at_each_tier() -> None:
    sizes = {"pods": 3, "leaves": 6, "hosts": 6}
    shape = Clos.model_validate({"kind": "clos", **sizes, "oversubscription": "3:2"})
    graph = shaped(shape)
    assert shape.oversubscription == Fraction(3, 2)
    assert degrees(graph) == {"h": {1}, "leaf": {6 + 4}, "spine": {6 + 4}, "core": {3}}
    assert [count(graph, word) for word in ("h", "leaf", "spine", "core")] == [108, 18, 12, 16]


def test_the_rails_of_a_host_are_its_ports_in_order() -> None:
    graph = shaped(DualRail(kind="dual-rail", hosts_per_leaf=2))
    assert links_of(graph) == [
        "h1:eth1 leaf1-1:h1",
        "h2:eth1 leaf1-1:h2",
        "h1:eth2 leaf2-1:h1",
        "h2:eth2 leaf2-1:h2",
    ]
    large = shaped(DualRail(kind="dual-rail", rails=3, leaves=2, spines=4, hosts_per_leaf=5))
    assert degrees(large) == {"h": {3}, "leaf": {5 + 4}, "spine": {2}}
    assert (count(large, "h"), count(large, "leaf"), count(large, "spine")) == (10, 6, 12)


ALL = [
    Star(kind="star", hosts=5),
    Dumbbell(kind="dumbbell", hosts_per_side=3),
    ParallelPaths(kind="parallel-paths", paths=3),
    LeafSpine(kind="leaf-spine", leaves=3, spines=2, hosts_per_leaf=4),
    FatTree(kind="fat-tree", k=6),
    Clos(kind="clos", pods=3, leaves=2, hosts=4),
    TwoSites(kind="two-sites"),
    DualRail(kind="dual-rail", leaves=2, spines=3, hosts_per_leaf=4),
]


@pytest.mark.parametrize("shape", ALL, ids=lambda shape: shape.kind)
def test_shapes_know_how_many_links_they_make(shape: Shape) -> None:
    assert shape._links() == len(expand(Graph(generator=shape)).links or ())


def losses(shape: Generator) -> dict[str, set[float]]:
    """Percentages of loss by the words of a link's ends."""
    found: dict[str, set[float]] = collections.defaultdict(set)
    for link in shaped(shape).links or ():
        ends = "-".join(end.node.rstrip("0123456789-") for end in link.endpoints)
        found[ends].add(float(link.loss.random * 100) if link.loss else 0)
    return found


def test_impairments_act_on_a_class_of_links() -> None:
    one, two = (LinkImpairments.model_validate({"loss": loss}) for loss in ("1%", "2%"))
    tree = FatTree(kind="fat-tree", k=2, core=one)
    assert losses(tree) == {"h-edge": {0}, "edge-agg": {1}, "agg-core": {1}}
    star = Star(kind="star", hosts=2, access=one)
    assert losses(star) == {"h-s": {1}}
    sites = TwoSites(kind="two-sites", core=one, long_haul=two)
    assert losses(sites) == {
        "h-leaf": {0},
        "leaf-spine": {1},
        "spine-border": {1},
        "border-border": {2},
    }
    narrow = Dumbbell(kind="dumbbell", bottleneck=two)
    assert losses(narrow) == {"h-s": {0}, "s-s": {2}}


def test_impairments_may_act_on_one_direction_of_a_class() -> None:
    spines = {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 1}
    graph = {"generator": spines | {"core": {"forward": {"loss": "1%"}}}}
    plan = resolve(TopologyFile.model_validate({"name": "x", "topology": graph}))
    senders = {half[1].node for link in plan.links for half in link.halves
               for fault in plan.faults if fault.directed_link == half[0]}  # fmt: skip
    assert senders == {"leaf1", "leaf2"}
