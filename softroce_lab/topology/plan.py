# SPDX-License-Identifier: GPL-2.0-or-later
"""The resolved plan of a lab: every name, index, address and route decided, nothing made yet.

Raw YAML (`topology.model`) is resolved into these types (`topology.resolve`); the fabric realises
them (`fabric`), the simulator will run them. They are values: frozen, comparable, and free of I/O.

Directions. A link joins its ends `a` and `b`. Its two directed halves are numbered
`2 * link.index` for a->b and `2 * link.index + 1` for b->a; that number is what drop records,
captures and counters carry.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

NodeKind = Literal["host", "switch"]
LoadBalancing = Literal["flow", "spray"]
FaultKey = Literal["identity", "index"]


@dataclasses.dataclass(frozen=True, slots=True)
class Port:
    """One end of a link: an interface inside its node's namespace."""

    node: str
    name: str  # interface name, at most 15 characters
    ifindex: int  # set explicitly at creation, unique in the lab, never 1
    mac: str  # locally administered, derived from the ifindex

    def __str__(self) -> str:
        return f"{self.node}:{self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A host or a switch; each is one network namespace."""

    index: int
    name: str
    kind: NodeKind
    namespace: str  # "<lab>-<node>"
    tier: int  # hops to the nearest host: hosts 0, leaves 1, spines 2
    address: str | None  # a host's IPv4 address, a /32; None for a switch
    ports: tuple[Port, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """A veth pair."""

    index: int
    a: Port
    b: Port

    @property
    def halves(self) -> tuple[tuple[int, Port, Port], tuple[int, Port, Port]]:
        """Both directed links: number, transmitting port, receiving port."""
        return (2 * self.index, self.a, self.b), (2 * self.index + 1, self.b, self.a)


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """At switch `node`, packets for `destination` may leave by any of `ports` (equal cost)."""

    node: str
    destination: str  # IPv4 prefix, "10.0.0.1/32"
    ports: tuple[Port, ...]  # all shortest next hops, in the order of their ifindex


@dataclasses.dataclass(frozen=True, slots=True)
class LossRule:
    """Random loss on one directed link, as tc-netem's `loss random`, resolved.

    `threshold` is the probability as a 64-bit threshold: a packet is lost when its 64-bit hash is
    below it (2**64 - 1 stands for certainty). `stream` is the 64-bit key of the hash, derived from
    the seed and stable names only, so that adding a link changes no other stream: the first 8 bytes
    of BLAKE2b(digest_size=8), big-endian, over compact JSON (no spaces, UTF-8) of

        [seed, rule, tier, "up" | "down" | "across"]        key `identity`: never the link
        [seed, rule, "sender:port", "receiver:port"]        key `index`

    where tier is the lesser of the hop's two ends, and up leads to the greater.
    """

    rule: str
    rule_id: int  # position in the plan's `faults`; drop records carry it
    directed_link: int
    key: FaultKey
    probability: float
    threshold: int
    stream: int


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Everything `fabric.up` needs. Ordered; equal input gives equal plans."""

    name: str
    seed: int
    mtu: int  # netdev MTU of every port, bytes
    load_balancing: LoadBalancing
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    routes: tuple[Route, ...]
    faults: tuple[LossRule, ...]
    digest: str  # SHA-256 of the canonical plan, hex: the manifest's topology hash

    def node(self, name: str) -> Node:
        """Return the node called `name`; KeyError if there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    @property
    def hosts(self) -> tuple[Node, ...]:
        """The hosts, in the order of the plan."""
        return tuple(node for node in self.nodes if node.kind == "host")
