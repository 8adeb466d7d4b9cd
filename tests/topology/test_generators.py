# SPDX-License-Identifier: GPL-2.0-or-later
"""Generators expand to what one would have written."""

from softroce_lab.topology.generators import expand
from softroce_lab.topology.model import Graph, LeafSpine, LinkSpec, ParallelPaths


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


def test_what_is_written_out_stays() -> None:
    graph = Graph(nodes={}, links=list[LinkSpec]())
    assert expand(graph) is graph


def test_names_fit_interfaces_at_the_largest() -> None:
    shape = LeafSpine(kind="leaf-spine", leaves=1, spines=1, hosts_per_leaf=1999)
    graph = expand(Graph(generator=shape))
    assert max(len(end.port) for link in graph.links or () for end in link.endpoints) <= 15
