# SPDX-License-Identifier: GPL-2.0-or-later
"""Generators: shorthands that expand to the nodes and links one could have written.

A switch's port is named after the node at its other end, so that the name does not change when
other links are added; a host's is `eth1`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from softroce_lab.topology.model import (
    Endpoint,
    Graph,
    LeafSpine,
    LinkSpec,
    NodeSpec,
    ParallelPaths,
)

Pair: TypeAlias = tuple[str, str]


def expand(graph: Graph) -> Graph:
    """Return the graph in nodes and links; one that is written so already is returned as it is."""
    match graph.generator:
        case LeafSpine() as shape:
            return _leaf_spine(shape)
        case ParallelPaths() as shape:
            return _parallel_paths(shape)
        case None:
            return graph


def _leaf_spine(shape: LeafSpine) -> Graph:
    """Hosts from h1 on leaf1, the next ones on leaf2, and so on."""
    hosts = _named("h", shape.leaves * shape.hosts_per_leaf)
    leaves = _named("leaf", shape.leaves)
    spines = _named("spine", shape.spines)
    access = [(host, leaves[i // shape.hosts_per_leaf]) for i, host in enumerate(hosts)]
    core = [(leaf, spine) for leaf in leaves for spine in spines]
    return _graph(hosts, [*leaves, *spines], [*access, *core])


def _parallel_paths(shape: ParallelPaths) -> Graph:
    """Half of the hosts on s1, half on s2, and m1.. between the two."""
    hosts = _named("h", 2 * shape.hosts_per_side)
    middles = _named("m", shape.paths)
    access = [(host, "s1" if i < shape.hosts_per_side else "s2") for i, host in enumerate(hosts)]
    paths = [link for middle in middles for link in (("s1", middle), (middle, "s2"))]
    return _graph(hosts, ["s1", *middles, "s2"], [*access, *paths])


def _named(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{i}" for i in range(1, count + 1)]


def _graph(hosts: Sequence[str], switches: Sequence[str], pairs: Iterable[Pair]) -> Graph:
    is_host = set(hosts)

    def end(node: str, peer: str) -> Endpoint:
        return Endpoint(node, "eth1" if node in is_host else peer)

    return Graph(
        nodes={
            **{name: NodeSpec(kind="host") for name in hosts},
            **{name: NodeSpec(kind="switch") for name in switches},
        },
        links=[LinkSpec(endpoints=[end(a, b), end(b, a)]) for a, b in pairs],
    )
