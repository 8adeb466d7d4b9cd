# SPDX-License-Identifier: GPL-2.0-or-later
"""Generators: shorthands for shapes, which expand to the nodes and links that they stand for.

Each may carry the impairments of whole classes of its links: `access`, those of hosts, and `core`,
those between switches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from softroce_lab.errors import UserError
from softroce_lab.faults.model import LinkImpairments
from softroce_lab.inputs.validation import Model

MAX_PORTS = 65_000  # a lab has fewer: limits.py
MAX_FAT_TREE = 32
MAX_RAILS = 8

_RATIO = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,4})?)(?:\s*:\s*([0-9]{1,4}))?", re.ASCII)


def _parse_ratio(value: object) -> Fraction:
    text = "" if isinstance(value, bool) else str(value)
    match = _RATIO.fullmatch(text)
    if match is None:
        what = f"{value!r} is not a ratio of bandwidth down to bandwidth up"
        raise UserError(what, hint="such as 2:1, or 2")
    down, up = Fraction(match[1]), Fraction(match[2] or 1)
    if not (down and up):
        raise UserError(f"the ratio {value!r} has a side of nothing", hint="such as 2:1")
    return down / up


Count = Annotated[int, Field(ge=1, le=MAX_PORTS)]
Ratio = Annotated[
    Fraction,
    PlainValidator(_parse_ratio),
    WithJsonSchema({"type": ["string", "number"], "pattern": r"^[0-9.]+( *: *[0-9]+)?$"}),
]


_CORE: Any = Field(LinkImpairments(), description="Impairments of the links between switches.")

Pair: TypeAlias = tuple[str, str]


class Expansion(NamedTuple):
    """What a shape stands for: its nodes, and its links by class with the class's impairments."""

    hosts: Sequence[str]
    switches: Sequence[str]
    classes: Sequence[tuple[LinkImpairments, Sequence[Pair]]]


class Shape(Model):
    """What all shapes have."""

    access: LinkImpairments = Field(
        LinkImpairments(), description="Impairments of the links of hosts."
    )

    def expansion(self) -> Expansion:
        """The nodes and links that it stands for."""
        raise NotImplementedError

    def _links(self) -> int:
        """How many links it expands to."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _bounded(self) -> Shape:
        ports = 2 * self._links()
        if ports > MAX_PORTS:
            what = f"that makes {ports} ports, more than {MAX_PORTS}"
            raise UserError(what, hint="choose smaller counts")
        return self


class Star(Shape):
    """Hosts h1, h2 and so on at one switch, s1."""

    kind: Literal["star"]
    hosts: Count = Field(description="Hosts on the switch.")

    def expansion(self) -> Expansion:
        hosts = _named("h", self.hosts)
        return Expansion(hosts, ["s1"], [(self.access, _spread(hosts, ["s1"]))])

    def _links(self) -> int:
        return self.hosts


class Dumbbell(Shape):
    """Hosts at both ends of one link, the bottleneck: h1 - s1 - s2 - h2."""

    kind: Literal["dumbbell"]
    hosts_per_side: Count = Field(1, description="Hosts at each end.")
    bottleneck: LinkImpairments = Field(
        LinkImpairments(), description="Impairments of the link between the switches."
    )

    def expansion(self) -> Expansion:
        """Half of the hosts on s1, half on s2."""
        hosts, ends = _named("h", 2 * self.hosts_per_side), ("s1", "s2")
        access = _spread(hosts, ends)
        return Expansion(hosts, ends, [(self.access, access), (self.bottleneck, [ends])])

    def _links(self) -> int:
        return 2 * self.hosts_per_side + 1


class ParallelPaths(Shape):
    """Hosts at both ends of several paths: h1 - s1 - {m1 .. mN} - s2 - h2."""

    kind: Literal["parallel-paths"]
    paths: Count = Field(description="Paths between the two outer switches.")
    hosts_per_side: Count = Field(1, description="Hosts at each end.")
    core: LinkImpairments = _CORE

    def expansion(self) -> Expansion:
        """Half of the hosts on s1, half on s2, and m1.. between the two."""
        hosts, middles = _named("h", 2 * self.hosts_per_side), _named("m", self.paths)
        access = _spread(hosts, ["s1", "s2"])
        ways = [link for middle in middles for link in (("s1", middle), (middle, "s2"))]
        switches = ["s1", *middles, "s2"]
        return Expansion(hosts, switches, [(self.access, access), (self.core, ways)])

    def _links(self) -> int:
        return 2 * (self.paths + self.hosts_per_side)


class LeafSpine(Shape):
    """Every leaf (leaf1 ...) is linked to every spine (spine1 ...). h1, h2 ... are at leaf1."""

    kind: Literal["leaf-spine"]
    leaves: Count = Field(description="Leaf switches.")
    spines: Count = Field(description="Spine switches.")
    hosts_per_leaf: Count = Field(description="Hosts of a leaf.")
    core: LinkImpairments = _CORE

    def expansion(self) -> Expansion:
        """Hosts from h1 on leaf1, the next ones on leaf2, and so on."""
        hosts = _named("h", self.leaves * self.hosts_per_leaf)
        group = _Group(_named("leaf", self.leaves), _named("spine", self.spines))
        access = _spread(hosts, group.leaves)
        return Expansion(hosts, group.switches, [(self.access, access), (self.core, group.pairs)])

    def _links(self) -> int:
        return self.leaves * (self.spines + self.hosts_per_leaf)


class FatTree(Shape):
    """Al-Fares' fat-tree of k-port switches (SIGCOMM'08).

    k pods of k/2 edge (edge1-1 ...) and k/2 aggregation switches (agg1-1 ...) each, (k/2)^2 core
    switches (core1 ...), k^3/4 hosts.
    """

    kind: Literal["fat-tree"]
    k: Annotated[
        int, Field(ge=2, le=MAX_FAT_TREE, multiple_of=2, description="Ports of a switch: even.")
    ]
    core: LinkImpairments = _CORE

    def expansion(self) -> Expansion:
        half = self.k // 2
        pods = _groups(self.k, half, half, ("edge", "agg"))
        return _pods(_named("h", self.k * half * half), pods, half, self)

    def _links(self) -> int:
        return 3 * self.k**3 // 4


class Clos(Shape):
    """Pods of leaves (leaf1-1 ...) and spines (spine1-1 ...) under a core (core1 ...).

    Each tier has the same oversubscription.

    All links being equal, a leaf with H hosts has H / oversubscription spines above it, and a spine
    with L leaves has L / oversubscription cores above it; neither division may leave a rest. With
    one pod there is no core.
    """

    kind: Literal["clos"]
    pods: Count = Field(description="Pods.")
    leaves: Count = Field(description="Leaves of a pod.")
    hosts: Count = Field(description="Hosts of a leaf.")
    oversubscription: Ratio = Field(
        Fraction(1),
        description="Bandwidth down over bandwidth up, of leaves and spines, such as `2:1`.",
    )
    core: LinkImpairments = _CORE

    @property
    def spines(self) -> int:
        """Spines of a pod."""
        return self._uplinks("a leaf", "hosts", self.hosts)

    @property
    def cores(self) -> int:
        """Cores above each spine; the n-th spines of all pods share theirs."""
        return self._uplinks("a spine", "leaves", self.leaves) if self.pods > 1 else 0

    def _uplinks(self, switch: str, what: str, below: int) -> int:
        uplinks = below / self.oversubscription
        if uplinks.denominator != 1:
            ratio = f"{self.oversubscription.numerator}:{self.oversubscription.denominator}"
            raise UserError(
                f"{switch} with {below} {what} would need {float(uplinks):g} uplinks at {ratio}",
                hint=f"choose {what} as a multiple of {self.oversubscription.numerator}",
            )
        return int(uplinks)

    def expansion(self) -> Expansion:
        pods = _groups(self.pods, self.leaves, self.spines)
        return _pods(_named("h", self.pods * self.leaves * self.hosts), pods, self.cores, self)

    def _links(self) -> int:
        return self.pods * (self.leaves * (self.hosts + self.spines) + self.spines * self.cores)


class TwoSites(Shape):
    """Two leaf-spines (leaf1-1 ..., leaf2-1 ...), joined by one long link: border1 - border2."""

    kind: Literal["two-sites"]
    leaves: Count = Field(2, description="Leaves of a site.")
    spines: Count = Field(2, description="Spines of a site.")
    hosts_per_leaf: Count = Field(2, description="Hosts of a leaf.")
    core: LinkImpairments = Field(
        LinkImpairments(), description="Impairments of the links between switches of a site."
    )
    long_haul: LinkImpairments = Field(
        LinkImpairments(), description="Impairments of the link between the sites."
    )

    def expansion(self) -> Expansion:
        """Each site's spines are linked to its border switch."""
        sites = _groups(2, self.leaves, self.spines)
        hosts = _named("h", 2 * self.leaves * self.hosts_per_leaf)
        borders = ("border1", "border2")
        access = _spread(hosts, [leaf for site in sites for leaf in site.leaves])
        core = [
            pair
            for site, border in zip(sites, borders, strict=True)
            for pair in (*site.pairs, *((spine, border) for spine in site.spines))
        ]
        switches = [*(switch for site in sites for switch in site.switches), *borders]
        long_haul = (self.long_haul, [borders])
        return Expansion(hosts, switches, [(self.access, access), (self.core, core), long_haul])

    def _links(self) -> int:
        return 2 * (self.leaves * (self.hosts_per_leaf + self.spines) + self.spines) + 1


class DualRail(Shape):
    """Hosts with a port in each of several planes. Planes share nothing but hosts.

    A plane is a leaf-spine, or, without spines, a single switch.
    """

    kind: Literal["dual-rail"]
    rails: Annotated[int, Field(ge=1, le=MAX_RAILS, description="Planes, and ports of a host.")] = 2
    leaves: Count = Field(1, description="Leaves of a plane.")
    spines: Annotated[int, Field(ge=0, le=MAX_PORTS, description="Spines of a plane.")] = 0
    hosts_per_leaf: Count = Field(description="Hosts of a leaf.")
    core: LinkImpairments = _CORE

    @model_validator(mode="after")
    def _joined(self) -> DualRail:
        if self.leaves > 1 and not self.spines:
            what = f"a plane of {self.leaves} leaves without spines is not connected"
            raise UserError(what, hint="spines: 1 or more, or leaves: 1")
        return self

    def expansion(self) -> Expansion:
        """The i-th port of every host leads to plane i, and there to the same leaf."""
        planes = _groups(self.rails, self.leaves, self.spines)
        hosts = _named("h", self.leaves * self.hosts_per_leaf)
        access = [pair for plane in planes for pair in _spread(hosts, plane.leaves)]
        core = [pair for plane in planes for pair in plane.pairs]
        switches = [switch for plane in planes for switch in plane.switches]
        return Expansion(hosts, switches, [(self.access, access), (self.core, core)])

    def _links(self) -> int:
        return self.rails * self.leaves * (self.hosts_per_leaf + self.spines)


Generator: TypeAlias = (
    Star | Dumbbell | ParallelPaths | LeafSpine | FatTree | Clos | TwoSites | DualRail
)


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


def _pods(
    hosts: Sequence[str], pods: Sequence[_Group], cores: int, shape: FatTree | Clos
) -> Expansion:
    """The n-th spine of every pod is linked to the n-th `cores` of the cores."""
    tops = _named("core", len(pods[0].spines) * cores)
    up = [
        (spine, core)
        for pod in pods
        for i, spine in enumerate(pod.spines)
        for core in tops[i * cores : (i + 1) * cores]
    ]
    leaves = [leaf for pod in pods for leaf in pod.leaves]
    within = [pair for pod in pods for pair in pod.pairs]
    switches = [*leaves, *(spine for pod in pods for spine in pod.spines), *tops]
    access = (shape.access, _spread(hosts, leaves))
    return Expansion(hosts, switches, [access, (shape.core, [*within, *up])])


def _named(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{i}" for i in range(1, count + 1)]


def _spread(hosts: Sequence[str], switches: Sequence[str]) -> list[Pair]:
    """Link the first hosts to the first switch, as many to the next, and so on."""
    each = len(hosts) // len(switches)
    return [(host, switches[i // each]) for i, host in enumerate(hosts)]
