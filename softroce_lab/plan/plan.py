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
import functools
import hashlib
import ipaddress
import json
from typing import Any, Literal, TypeAlias

from softroce_lab.plan.effects import Fault

NodeKind = Literal["host", "kernel", "switch"]
KernelVersion = Literal["6.1", "6.12"]  # of Debian 12 and Debian 13
GUESTS: dict[str, str] = {"kernel": "softroce_lab.programs.kernel_host.kind"}
"""The kinds of nodes that are machines of their own, and the modules of these kinds: see
`fabric/guests.py`."""
LoadBalancing = Literal["flow", "spray", "adaptive"]

IPV6_PREFIX = ipaddress.IPv6Network("fd53:6c61:6200::/96")  # LAB_IPV6_* of xdp/lab_maps.h


@dataclasses.dataclass(frozen=True, slots=True)
class Port:
    """One end of a link: an interface inside its node's namespace."""

    node: str
    name: str  # interface name, at most 15 characters
    ifindex: int  # set explicitly at creation, unique in the lab, never 1
    mac: str  # locally administered, derived from the ifindex
    address: str | None = None  # a host port's IPv4 address, a /32

    @property
    def address6(self) -> str | None:
        """A host port's IPv6 address, a /128: the IPv4 address behind the lab's prefix.

        So that a switch takes the same decisions for either family, and a fault hits the same
        packets.
        """
        if self.address is None:
            return None
        return str(IPV6_PREFIX[int(ipaddress.IPv4Address(self.address))])

    def __str__(self) -> str:
        return f"{self.node}:{self.name}"


Half: TypeAlias = tuple[int, Port, Port]  # directed link, its transmitting and its receiving port


@dataclasses.dataclass(frozen=True, slots=True)
class Guest:
    """The virtual machine that a kernel host is."""

    kernel: KernelVersion
    memory_bytes: int
    cpus: int


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A host or a switch; each is one network namespace.

    A kernel host is a virtual machine at the ports of its namespace; a plain host's soft RNICs
    live in it.
    """

    index: int
    name: str
    kind: NodeKind
    namespace: str  # "<lab>-<node>"
    tier: int  # hops to the nearest host: hosts 0, leaves 1, spines 2
    ports: tuple[Port, ...]  # a host's are its rails, in order
    guest: Guest | None = None  # of a kernel host

    @property
    def is_host(self) -> bool:
        """Whether it has addresses, be it a kernel host or a plain one."""
        return self.kind != "switch"

    @property
    def address(self) -> str | None:
        """The IPv4 address of a host's first rail; None for a switch."""
        return self.ports[0].address


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """A veth pair."""

    index: int
    a: Port
    b: Port

    @property
    def halves(self) -> tuple[Half, Half]:
        return (2 * self.index, self.a, self.b), (2 * self.index + 1, self.b, self.a)


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """At switch `node`, packets for `destination` may leave by any of `ports` (equal cost)."""

    node: str
    destination: str  # IPv4 prefix, "10.0.0.1/32"
    ports: tuple[Port, ...]  # all shortest next hops, in the order of their ifindex


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything `fabric.up` needs. Ordered; equal input gives equal plans.

    What follows from its fields is found once: a simulation asks for its hosts time and again.
    """

    name: str
    seed: int
    mtu: int  # netdev MTU of every port, bytes
    load_balancing: LoadBalancing
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    routes: tuple[Route, ...]
    faults: tuple[Fault, ...]
    digest: str  # SHA-256 of the canonical plan, hex: the manifest's topology hash

    def __hash__(self) -> int:
        """Of the digest, which equal plans share: they have thousands of links and rules."""
        return hash(self.digest)

    def node(self, name: str) -> Node:
        """Return the node called `name`; KeyError if there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    @functools.cached_property
    def halves(self) -> tuple[Half, ...]:
        return tuple(half for link in self.links for half in link.halves)

    @functools.cached_property
    def hosts(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.is_host)

    @functools.cached_property
    def plain_hosts(self) -> tuple[Node, ...]:
        """The hosts that soft RNICs can live in, in the order of the plan."""
        return tuple(node for node in self.nodes if node.kind == "host")

    @functools.cached_property
    def guests(self) -> tuple[Node, ...]:
        """The nodes that are machines of their own, in the order of the plan."""
        return tuple(node for node in self.nodes if node.kind in GUESTS)

    @functools.cached_property
    def kernel_hosts(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.kind == "kernel")


def without_loss(plan: Plan) -> Plan:
    """`plan` without the faults that drop, cut or corrupt packets."""
    kept = tuple(fault for fault in plan.faults if fault.shapes)
    return with_digest(dataclasses.replace(plan, faults=kept))


def with_digest(plan: Plan) -> Plan:
    """Return `plan` with its digest: SHA-256 over a compact JSON text of the rest.

    Routes follow from nodes and links, and are not in it.
    """
    digest = hashlib.sha256()
    head = (plan.name, plan.seed, plan.mtu, plan.load_balancing)
    tables = (
        (head,),
        plan.nodes,
        plan.links,
        plan.faults,
    )
    for table in tables:
        digest.update("".join(f"{_encode(row)}\n" for row in table).encode() + b"\n")
    return dataclasses.replace(plan, digest=digest.hexdigest())


def _values(value: Any) -> list[object]:
    """A dataclass with slots as the list of its fields; `dataclasses.astuple` copies them deep."""
    return [getattr(value, name) for name in value.__slots__]


_encode = json.JSONEncoder(separators=(",", ":"), default=_values).encode
