# SPDX-License-Identifier: GPL-2.0-or-later
"""Generators: shorthands that expand to the nodes and links one could have written.

A switch's port is named after the node at its other end, so that the name does not change when
other links are added; a host's are `eth1`, `eth2` and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from softroce_lab.faults.model import LinkImpairments
from softroce_lab.topology.model import Endpoint, Graph, LinkSpec, NodeSpec
from softroce_lab.topology.shapes import (
    Clos,
    DualRail,
    Dumbbell,
    FatTree,
    Generator,
    LeafSpine,
    ParallelPaths,
    Star,
    TwoSites,
)

Pair: TypeAlias = tuple[str, str]
LinkClass: TypeAlias = tuple[LinkImpairments, Iterable[Pair]]


def expand(graph: Graph) -> Graph:
    """Return the graph in nodes and links; one that is written so already is returned as it is.

    Of a generator's nodes, `defaults` are the hosts'.
    """
    if graph.generator is None:
        return graph
    made = _expanded(graph.generator)
    hosts = NodeSpec(kind=graph.defaults.kind or "host")
    nodes = {
        name: hosts if spec and spec.kind == "host" else spec
        for name, spec in (made.nodes or {}).items()
    }
    return made.model_copy(update={"nodes": nodes, "defaults": graph.defaults})


def _expanded(shape: Generator) -> Graph:
    match shape:
        case Star():
            return _star(shape)
        case Dumbbell():
            return _dumbbell(shape)
        case ParallelPaths():
            return _parallel_paths(shape)
        case LeafSpine():
            return _leaf_spine(shape)
        case FatTree():
            return _fat_tree(shape)
        case Clos():
            return _clos(shape)
        case TwoSites():
            return _two_sites(shape)
        case DualRail():
            return _dual_rail(shape)


def _star(shape: Star) -> Graph:
    hosts = _named("h", shape.hosts)
    return _graph(hosts, ["s1"], (shape.access, _spread(hosts, ["s1"])))


def _dumbbell(shape: Dumbbell) -> Graph:
    """Half of the hosts on s1, half on s2."""
    hosts, ends = _named("h", 2 * shape.hosts_per_side), ("s1", "s2")
    access = _spread(hosts, ends)
    return _graph(hosts, ends, (shape.access, access), (shape.bottleneck, [ends]))


def _parallel_paths(shape: ParallelPaths) -> Graph:
    """Half of the hosts on s1, half on s2, and m1.. between the two."""
    hosts, middles = _named("h", 2 * shape.hosts_per_side), _named("m", shape.paths)
    access = _spread(hosts, ["s1", "s2"])
    paths = [link for middle in middles for link in (("s1", middle), (middle, "s2"))]
    return _graph(hosts, ["s1", *middles, "s2"], (shape.access, access), (shape.core, paths))


def _leaf_spine(shape: LeafSpine) -> Graph:
    """Hosts from h1 on leaf1, the next ones on leaf2, and so on."""
    hosts = _named("h", shape.leaves * shape.hosts_per_leaf)
    group = _Group(_named("leaf", shape.leaves), _named("spine", shape.spines))
    access = _spread(hosts, group.leaves)
    return _graph(hosts, group.switches, (shape.access, access), (shape.core, group.pairs))


class _Group(NamedTuple):
    """Leaves all linked to spines: a pod, a site or a plane."""

    leaves: list[str]
    spines: list[str]

    @property
    def switches(self) -> list[str]:
        return [*self.leaves, *self.spines]

    @property
    def pairs(self) -> list[Pair]:
        return [(leaf, spine) for leaf in self.leaves for spine in self.spines]


def _groups(count: int, leaves: int, spines: int, words: Pair = ("leaf", "spine")) -> list[_Group]:
    """Groups of leaf1-1, leaf1-2 ..., then leaf2-1 ..."""
    low, high = words
    return [
        _Group(_named(f"{low}{i}-", leaves), _named(f"{high}{i}-", spines))
        for i in range(1, count + 1)
    ]


def _fat_tree(shape: FatTree) -> Graph:
    half = shape.k // 2
    pods = _groups(shape.k, half, half, ("edge", "agg"))
    return _pods(_named("h", shape.k * half * half), pods, half, shape)


def _clos(shape: Clos) -> Graph:
    pods = _groups(shape.pods, shape.leaves, shape.spines)
    hosts = _named("h", shape.pods * shape.leaves * shape.hosts)
    return _pods(hosts, pods, shape.cores, shape)


def _pods(hosts: Sequence[str], pods: Sequence[_Group], cores: int, shape: FatTree | Clos) -> Graph:
    """The n-th spine of every pod is linked to the n-th `cores` of the cores."""
    tops = _named("core", len(pods[0].spines) * cores)
    up = [
        (spine, core)
        for pod in pods
        for i, spine in enumerate(pod.spines)
        for core in tops[i * cores : (i + 1) * cores]
    ]
    access = _spread(hosts, [leaf for pod in pods for leaf in pod.leaves])
    within = [pair for pod in pods for pair in pod.pairs]
    switches = [
        *(leaf for pod in pods for leaf in pod.leaves),
        *(spine for pod in pods for spine in pod.spines),
        *tops,
    ]
    return _graph(hosts, switches, (shape.access, access), (shape.core, [*within, *up]))


def _two_sites(shape: TwoSites) -> Graph:
    """Each site's spines are linked to its border switch."""
    sites = _groups(2, shape.leaves, shape.spines)
    hosts = _named("h", 2 * shape.leaves * shape.hosts_per_leaf)
    borders = ("border1", "border2")
    access = _spread(hosts, [leaf for site in sites for leaf in site.leaves])
    core = [
        pair
        for site, border in zip(sites, borders, strict=True)
        for pair in (*site.pairs, *((spine, border) for spine in site.spines))
    ]
    switches = [*(switch for site in sites for switch in site.switches), *borders]
    long_haul = (shape.long_haul, [borders])
    return _graph(hosts, switches, (shape.access, access), (shape.core, core), long_haul)


def _dual_rail(shape: DualRail) -> Graph:
    """The i-th port of every host leads to plane i, and there to the same leaf."""
    planes = _groups(shape.rails, shape.leaves, shape.spines)
    hosts = _named("h", shape.leaves * shape.hosts_per_leaf)
    access = [pair for plane in planes for pair in _spread(hosts, plane.leaves)]
    core = [pair for plane in planes for pair in plane.pairs]
    switches = [switch for plane in planes for switch in plane.switches]
    return _graph(hosts, switches, (shape.access, access), (shape.core, core))


def _named(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{i}" for i in range(1, count + 1)]


def _spread(hosts: Sequence[str], switches: Sequence[str]) -> list[Pair]:
    """Link the first hosts to the first switch, as many to the next, and so on."""
    each = len(hosts) // len(switches)
    return [(host, switches[i // each]) for i, host in enumerate(hosts)]


def _graph(hosts: Sequence[str], switches: Sequence[str], *classes: LinkClass) -> Graph:
    rails = dict.fromkeys(hosts, 0)

    def end(node: str, peer: str) -> Endpoint:
        if node not in rails:
            return Endpoint(node, peer)
        rails[node] += 1
        return Endpoint(node, f"eth{rails[node]}")

    return Graph(
        nodes={
            **{name: NodeSpec(kind="host") for name in hosts},
            **{name: NodeSpec(kind="switch") for name in switches},
        },
        links=[
            _impaired([end(a, b), end(b, a)], impairments)
            for impairments, pairs in classes
            for a, b in pairs
        ],
    )


def _impaired(endpoints: list[Endpoint], impairments: LinkImpairments) -> LinkSpec:
    # They were validated where they were read, and are no longer as they were written.
    given = {word: getattr(impairments, word) for word in impairments.model_fields_set}
    return LinkSpec.model_construct(endpoints=endpoints, **given)
