# SPDX-License-Identifier: GPL-2.0-or-later
"""Generators expand to what one would have written."""

import collections
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softroce_lab.errors import UserError
from softroce_lab.faults.model import LinkImpairments
from softroce_lab.inputs.validation import validate
from softroce_lab.inputs.yaml_source import Source
from softroce_lab.topology.model import Graph, LinkSpec, TopologyFile, expand
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


def nodes_of(graph: Graph) -> dict[str, str | None]:
    return {name: spec.kind if spec else None for name, spec in (graph.nodes or {}).items()}


def links_of(graph: Graph) -> list[str]:
    return [" ".join(map(str, link.endpoints)) for link in graph.links or ()]


def test_leaf_spine() -> None:
    shape = LeafSpine(kind="leaf-spine", leaves=2, spines=2, hosts_per_leaf=2)
    graph = expand(Graph(generator=shape))
    assert nodes_of(graph) == {
        **dict.fromkeys(("h1", "h2", "h3", "h4"), "host"),
        **dict.fromkeys(("leaf1", "leaf2", "spine1", "spine2"), "switch"),
    }
    assert links_of(graph) == [
        "h1:eth1 leaf1:h1",
        "h2:eth1 leaf1:h2",
        "h3:eth1 leaf2:h3",
        "h4:eth1 leaf2:h4",
        "leaf1:spine1 spine1:leaf1",
        "leaf1:spine2 spine2:leaf1",
        "leaf2:spine1 spine1:leaf2",
        "leaf2:spine2 spine2:leaf2",
    ]


def test_parallel_paths() -> None:
    shape = ParallelPaths(kind="parallel-paths", paths=3, hosts_per_side=2)
    graph = expand(Graph(generator=shape))
    assert list(nodes_of(graph)) == ["h1", "h2", "h3", "h4", "s1", "m1", "m2", "m3", "s2"]
    assert links_of(graph)[:4] == [
        "h1:eth1 s1:h1",
        "h2:eth1 s1:h2",
        "h3:eth1 s2:h3",
        "h4:eth1 s2:h4",
    ]
    assert links_of(graph)[4:6] == ["s1:m1 m1:s1", "m1:s2 s2:m1"]
    assert len(links_of(graph)) == 10


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


def test_star() -> None:
    graph = shaped(Star(kind="star", hosts=3))
    assert list(nodes_of(graph)) == ["h1", "h2", "h3", "s1"]
    assert links_of(graph) == ["h1:eth1 s1:h1", "h2:eth1 s1:h2", "h3:eth1 s1:h3"]


def test_dumbbell() -> None:
    graph = shaped(Dumbbell(kind="dumbbell", hosts_per_side=2))
    assert links_of(graph) == [
        "h1:eth1 s1:h1",
        "h2:eth1 s1:h2",
        "h3:eth1 s2:h3",
        "h4:eth1 s2:h4",
        "s1:s2 s2:s1",
    ]


@pytest.mark.parametrize("k", range(2, 13, 2))
def test_fat_tree(k: int) -> None:
    graph = shaped(FatTree(kind="fat-tree", k=k))
    words = ("h", "edge", "agg", "core")
    assert [count(graph, word) for word in words] == [k**3 // 4, k * k // 2, k * k // 2, k * k // 4]
    assert degrees(graph) == {"h": {1}, "edge": {k}, "agg": {k}, "core": {k}}
    assert len(set(links_of(graph))) == 3 * k**3 // 4


def test_the_pods_of_a_fat_tree_meet_in_its_core() -> None:
    links = links_of(shaped(FatTree(kind="fat-tree", k=4)))
    assert len(links) == 48
    assert links[:3] == ["h1:eth1 edge1-1:h1", "h2:eth1 edge1-1:h2", "h3:eth1 edge1-2:h3"]
    assert links[16:18] == ["edge1-1:agg1-1 agg1-1:edge1-1", "edge1-1:agg1-2 agg1-2:edge1-1"]
    assert links[32:36] == [
        "agg1-1:core1 core1:agg1-1",
        "agg1-1:core2 core2:agg1-1",
        "agg1-2:core3 core3:agg1-2",
        "agg1-2:core4 core4:agg1-2",
    ]


def test_clos_has_the_same_oversubscription_at_each_tier() -> None:
    sizes = {"pods": 3, "leaves": 6, "hosts": 6}
    shape = Clos.model_validate({"kind": "clos", **sizes, "oversubscription": "3:2"})
    graph = shaped(shape)
    assert shape.oversubscription == Fraction(3, 2)
    assert degrees(graph) == {"h": {1}, "leaf": {6 + 4}, "spine": {6 + 4}, "core": {3}}
    assert [count(graph, word) for word in ("h", "leaf", "spine", "core")] == [108, 18, 12, 16]


def test_a_fat_tree_is_a_clos() -> None:
    clos = shaped(Clos(kind="clos", pods=4, leaves=2, hosts=2))
    tree = shaped(FatTree(kind="fat-tree", k=4))
    renamed = [link.replace("leaf", "edge").replace("spine", "agg") for link in links_of(clos)]
    assert renamed == links_of(tree)


def test_a_clos_of_one_pod_has_no_core() -> None:
    sizes = {"pods": 1, "leaves": 3, "hosts": 2}
    graph = shaped(Clos.model_validate({"kind": "clos", **sizes, "oversubscription": 2}))
    assert degrees(graph) == {"h": {1}, "leaf": {3}, "spine": {3}}


def test_two_sites() -> None:
    graph = shaped(TwoSites(kind="two-sites", leaves=2, spines=1, hosts_per_leaf=1))
    assert links_of(graph) == [
        "h1:eth1 leaf1-1:h1",
        "h2:eth1 leaf1-2:h2",
        "h3:eth1 leaf2-1:h3",
        "h4:eth1 leaf2-2:h4",
        "leaf1-1:spine1-1 spine1-1:leaf1-1",
        "leaf1-2:spine1-1 spine1-1:leaf1-2",
        "spine1-1:border1 border1:spine1-1",
        "leaf2-1:spine2-1 spine2-1:leaf2-1",
        "leaf2-2:spine2-1 spine2-1:leaf2-2",
        "spine2-1:border2 border2:spine2-1",
        "border1:border2 border2:border1",
    ]


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


small = st.integers(0, 9)
sizes = {
    "star": ["hosts"],
    "dumbbell": ["hosts_per_side"],
    "parallel-paths": ["paths", "hosts_per_side"],
    "leaf-spine": ["leaves", "spines", "hosts_per_leaf"],
    "fat-tree": ["k"],
    "clos": ["pods", "leaves", "hosts", "oversubscription"],
    "two-sites": ["leaves", "spines", "hosts_per_leaf"],
    "dual-rail": ["rails", "leaves", "spines", "hosts_per_leaf"],
}
any_shape = st.one_of(
    st.fixed_dictionaries({"kind": st.just(kind), **dict.fromkeys(keys, small)})
    for kind, keys in sizes.items()
)


@settings(deadline=None, max_examples=100)
@given(any_shape)
def test_any_sizes_make_a_lab_or_are_a_user_error(shape: dict[str, Any]) -> None:
    data = {"name": "x", "topology": {"generator": shape}}
    try:
        plan = resolve(validate(TopologyFile, Source(None, data, {}, {})))
    except UserError:
        return
    for host in plan.hosts:
        assert [port.name for port in host.ports] == [
            f"eth{rail}" for rail in range(1, len(host.ports) + 1)
        ]
    reachable = collections.Counter(route.destination for route in plan.routes)
    planes = shape.get("rails", 1)
    switches = len(plan.nodes) - len(plan.hosts)
    assert set(reachable.values()) == {switches // planes}


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


def test_defaults_are_those_of_the_hosts() -> None:
    raw = {
        "generator": {"kind": "star", "hosts": 2},
        "defaults": {"kind": "kernel", "kernel": "6.1"},
    }
    plan = resolve(TopologyFile.model_validate({"name": "x", "topology": raw}))
    assert [host.guest and host.guest.kernel for host in plan.hosts] == ["6.1", "6.1"]
    assert plan.node("s1").kind == "switch"


def test_what_is_written_out_stays() -> None:
    graph = Graph(nodes={}, links=list[LinkSpec]())
    assert expand(graph) is graph


def test_names_fit_interfaces_at_the_largest() -> None:
    shape = LeafSpine(kind="leaf-spine", leaves=1, spines=1, hosts_per_leaf=1999)
    graph = expand(Graph(generator=shape))
    assert max(len(end.port) for link in graph.links or () for end in link.endpoints) <= 15
