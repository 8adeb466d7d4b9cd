# SPDX-License-Identifier: GPL-2.0-or-later
"""The topology file as it is written: containerlab's shape, plus generators and impairments.

docs/reference/topologies.md is its reference. What follows from several parts together, such as
that every host has a link, is `resolve`'s to check.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, NamedTuple

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.faults.model import FaultRule, LinkImpairments, check_name, name_schema
from softroce_lab.inputs.validation import KeyedError, Model, editor_schema
from softroce_lab.plan.plan import KernelVersion, LoadBalancing, NodeKind
from softroce_lab.structs import CONSTANTS
from softroce_lab.topology.shapes import Generator

MAX_EQUAL_COST_PORTS: int = CONSTANTS["LAB_GROUP_PORTS"]  # what a route's map entry holds
MAX_LAB_NAME = 32
MAX_NODE_NAME = 31  # with the lab's name and a hyphen it names a namespace: at most 64
MTU_DEFAULT_BYTES = 2200  # IB path MTU 2048 with all its headers
MTU_MIN_BYTES = 576
MTU_MAX_BYTES = 9216  # of Ethernet's jumbo frames; a lab takes fewer (limits.py)
SEED_MAX = 2**64 - 1
GUEST_CPUS_MAX = 16
_GUEST_MEMORY_BYTES = range(256 << 20, (64 << 30) + 1)  # with less a guest has no room for rxe

_PORT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}", re.ASCII)
# Names that the kernel or its sysctl tree takes for something else.
_RESERVED_PORTS = frozenset({"lo", "all", "default"})


def check_lab_name(name: str) -> str:
    """Return `name` if it can name a lab; UserError otherwise."""
    return check_name(name, "lab name", MAX_LAB_NAME)


def check_seed(seed: int) -> int:
    """Return `seed` if it is an unsigned 64-bit integer; UserError otherwise."""
    if not 0 <= seed <= SEED_MAX:
        raise UserError(f"seed {seed} is not between 0 and 2^64 - 1")
    return seed


def _check_node_name(name: str) -> str:
    return check_name(name, "node name", MAX_NODE_NAME)


class Endpoint(NamedTuple):
    """One end of a link, written `node:port`."""

    node: str
    port: str

    def __str__(self) -> str:
        return f"{self.node}:{self.port}"


def _parse_endpoint(value: object) -> Endpoint:
    if isinstance(value, Endpoint):
        return value
    node, colon, port = str(value).partition(":")
    if not isinstance(value, str) or not (node and colon and port):
        raise UserError(f"endpoint {value!r} is not of the form node:port", hint="such as h1:eth1")
    if len(port) > 15:
        raise UserError(f"interface name {port!r} is longer than 15 characters")
    if port in _RESERVED_PORTS or not _PORT.fullmatch(port):
        raise UserError(
            f"interface name {port!r} is not allowed",
            hint="letters, digits, '.', '_' and '-', not lo, all or default; such as eth1",
        )
    return Endpoint(node, port)


NodeName = Annotated[str, AfterValidator(_check_node_name), name_schema(MAX_NODE_NAME)]
EndpointField = Annotated[
    Endpoint,
    PlainValidator(_parse_endpoint),
    WithJsonSchema(
        {"type": "string", "pattern": "^[a-z0-9][a-z0-9-]*:[A-Za-z0-9][A-Za-z0-9._-]*$"}
    ),
]


def _parse_memory(value: object) -> int:
    if not isinstance(value, str):
        raise UserError(f"memory {value!r} has no unit", hint="for example 1 GiB")
    size_bytes = units.parse_bytes(value)
    if size_bytes not in _GUEST_MEMORY_BYTES:
        raise UserError(f"memory {value!r} is not between 256 MiB and 64 GiB")
    return size_bytes


def _unquoted(value: object) -> object:
    """YAML takes 6.1 for a number, which it looks like; as it was written, 6.10 is another one."""
    return str(value) if isinstance(value, float) else value


class NodeSpec(Model):
    """A node, or the defaults of all nodes. Only kernel hosts have keys other than `kind`."""

    kind: NodeKind | None = Field(
        None,
        description="`host`, `switch`, or `kernel`: a virtual machine that runs Linux's own RDMA.",
    )
    kernel: Annotated[KernelVersion, BeforeValidator(_unquoted)] | None = Field(
        None, description="Kernel version of a kernel host, such as `6.1`."
    )
    memory: (
        Annotated[int, PlainValidator(_parse_memory), WithJsonSchema({"type": "string"})] | None
    ) = Field(None, description="Memory of a kernel host, 256 MiB to 64 GiB.")
    cpus: Annotated[int, Field(ge=1, le=GUEST_CPUS_MAX)] | None = Field(
        None, description="Processors of a kernel host."
    )

    def guest_keys(self) -> list[str]:
        """The keys given that only a kernel host has."""
        return [key for key in ("kernel", "memory", "cpus") if getattr(self, key) is not None]


class LinkSpec(LinkImpairments):
    """A link, with its impairments."""

    endpoints: Annotated[
        list[EndpointField],
        Field(
            min_length=2,
            max_length=2,
            description=(
                'Both ends, `["node:port", "node:port"]`. A port is an interface of that '
                "name, at most 15 characters."
            ),
        ),
    ]


class Graph(Model):
    """A generator, or nodes and links."""

    generator: Annotated[Generator, Field(discriminator="kind")] | None = Field(
        None,
        description=(
            "A shape with its sizes. The file has either this key, or `nodes` and `links`."
        ),
    )
    defaults: NodeSpec = Field(
        NodeSpec(), description="Keys of all nodes. With a generator: keys of all hosts."
    )
    nodes: dict[NodeName, NodeSpec | None] | None = Field(
        None, description="The nodes by name: `a-z 0-9 -`, at most 31 characters."
    )
    links: list[LinkSpec] | None = Field(None, description="The links, with their impairments.")

    @model_validator(mode="after")
    def _one_way(self) -> Graph:
        explicit = self.nodes is not None or self.links is not None
        if explicit == (self.generator is not None):
            what = "both a generator and" if explicit else "neither a generator nor"
            raise UserError(f"the topology has {what} nodes and links", hint="give one of the two")
        if self.generator is not None and self.defaults.kind == "switch":
            what = "a generator knows its switches: its defaults are those of the hosts"
            raise KeyedError("defaults", what, "kind: host or kernel")
        return self


def expand(graph: Graph) -> Graph:
    """The graph in nodes and links; one that is written so already is returned as it is.

    A switch's port is named after the node at its other end, so that the name does not change when
    other links are added; a host's are `eth1`, `eth2` and so on. Of a generator's nodes, `defaults`
    are the hosts'.
    """
    if graph.generator is None:
        return graph
    made = graph.generator.expansion()
    rails = dict.fromkeys(made.hosts, 0)

    def end(node: str, peer: str) -> Endpoint:
        if node not in rails:
            return Endpoint(node, peer)
        rails[node] += 1
        return Endpoint(node, f"eth{rails[node]}")

    host, switch = NodeSpec(kind=graph.defaults.kind or "host"), NodeSpec(kind="switch")
    return Graph(
        defaults=graph.defaults,
        nodes={**dict.fromkeys(made.hosts, host), **dict.fromkeys(made.switches, switch)},
        links=[
            _impaired([end(a, b), end(b, a)], impairments)
            for impairments, pairs in made.classes
            for a, b in pairs
        ],
    )


def _impaired(endpoints: list[Endpoint], impairments: LinkImpairments) -> LinkSpec:
    # They were validated where they were read, and are no longer as they were written.
    given = {word: getattr(impairments, word) for word in impairments.model_fields_set}
    return LinkSpec.model_construct(endpoints=endpoints, **given)


class TopologyFile(Model):
    """The whole file."""

    name: Annotated[str, AfterValidator(check_lab_name), name_schema(MAX_LAB_NAME)] = Field(
        description=(
            "Name of the lab, and of its namespaces `NAME-NODE`: `a-z 0-9 -`, at most 32 "
            "characters."
        )
    )
    topology: Graph = Field(description="A generator, or nodes and links.")
    lb: LoadBalancing = Field(
        "flow",
        description=(
            "How a switch chooses among ports of equal cost. `flow`: by a hash of the "
            "flow, UDP source port included. `spray`: for each packet, by a hash of its "
            "number. `adaptive`: for each packet, the port with the shortest queue."
        ),
    )
    mtu: Annotated[
        int,
        Field(
            ge=MTU_MIN_BYTES,
            le=MTU_MAX_BYTES,
            description=(
                "MTU of every port, bytes. The default carries an IB path MTU of 2048. The "
                "real clock takes 1280 to 3498."
            ),
        ),
    ] = MTU_DEFAULT_BYTES
    seed: Annotated[
        int,
        Field(
            ge=0, le=SEED_MAX, description="Seed of all random decisions. Commands can override it."
        ),
    ] = 1
    faults: Annotated[list[FaultRule], Field(default_factory=list, description="Fault rules.")]


def json_schema() -> dict[str, Any]:
    """Describe the file as JSON Schema, for editors."""
    return editor_schema(TopologyFile, "softroce_lab topology")
