# SPDX-License-Identifier: GPL-2.0-or-later
"""The experiment file as it is written; docs/experiments.md is its reference.

It is a topology file with more keys: `topology`, `lb`, `mtu` and `faults` mean what they mean
there, and the topology, as well as faults, may be named instead of written.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
    model_validator,
)

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.experiment.transports import policy_file
from softroce_lab.faults.model import FaultRule, name_schema
from softroce_lab.faults.words import Filled, Length, Time
from softroce_lab.inputs.validation import KeyedError, editor_schema
from softroce_lab.plan.plan import LoadBalancing
from softroce_lab.recovery.defaults import BLACKOUT_NS
from softroce_lab.topology.model import (
    MAX_LAB_NAME,
    MTU_MAX_BYTES,
    MTU_MIN_BYTES,
    SEED_MAX,
    Graph,
    NodeName,
    check_lab_name,
)
from softroce_lab.workloads.work import MAX_MESSAGE_BYTES, MAX_OPERATIONS

MAX_BYTES = 1 << 44
MAX_SEEDS = 1 << 20
MAX_DEPTH = 256
MAX_SLOTS = 1 << 16
DEADLINE_NS = 10 * 10**9
MAX_DEADLINE_NS = 10**6 * 10**9  # native time is 64 bits of picoseconds: 106 days
DEFAULT_MESSAGE_BYTES = 1 << 20

Clock: TypeAlias = Literal["virtual", "real"]
Payload: TypeAlias = Literal["none", "verify"]

# --- Quantities ------------------------------------------------------------------------------


def _sized(low: int, high: int) -> PlainValidator:
    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise UserError("expected a size", hint="such as 1MiB")
        size = units.parse_bytes(str(value))
        if not low <= size <= high:
            bounds = f"between {units.format_bytes(low)} and {units.format_bytes(high)}"
            raise UserError(f"size {value!r} is not {bounds}")
        return size

    return PlainValidator(parse)


_SIZE_SCHEMA = WithJsonSchema({"type": "string", "pattern": "^[0-9.]+ *[kKMGT]?i?B$"})
Bytes = Annotated[int, _sized(0, MAX_BYTES), _SIZE_SCHEMA]
MessageBytes = Annotated[int, _sized(1, MAX_MESSAGE_BYTES), _SIZE_SCHEMA]


def _of_a_run(time_ns: int) -> int:
    if time_ns > MAX_DEADLINE_NS:
        raise UserError(
            f"{time_ns // 10**9:,} s: a run lasts {MAX_DEADLINE_NS // 10**9:,} s at most"
        )
    return time_ns


RunTime = Annotated[Length, AfterValidator(_of_a_run)]


def _seeds(value: object) -> object:
    """A number of seeds, counted from 1, or the seeds themselves."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= MAX_SEEDS:
            raise UserError(f"{value} seeds", hint=f"1 to {MAX_SEEDS}, or a list of seeds")
        return list(range(1, value + 1))
    if not isinstance(value, list):
        raise UserError("expected how many seeds, or a list of them", hint="seeds: [1, 2]")
    seen: set[str] = set()
    for seed in map(str, value):
        if seed in seen:
            raise UserError(f"seed {seed} stands twice")
        seen.add(seed)
    return value


Seeds = Annotated[
    list[Annotated[int, Field(ge=0, le=SEED_MAX)]],
    BeforeValidator(_seeds, json_schema_input_type=int | list[int]),
    Field(min_length=1, max_length=MAX_SEEDS),
]


def _hosts(value: object) -> object:
    """A number of hosts, the first ones, or their names."""
    if not isinstance(value, int | list) or isinstance(value, bool):
        raise UserError("expected how many hosts, or a list of them", hint="hosts: [h1, h3]")
    if (value if isinstance(value, int) else len(value)) < 2:
        raise UserError("a workload has two hosts at least")
    return value


Hosts = Annotated[
    Annotated[int, Tag("counted")] | Annotated[list[NodeName], Tag("named")],
    Discriminator(lambda value: "counted" if isinstance(value, int) else "named"),
    BeforeValidator(_hosts, json_schema_input_type=int | list[str]),
]

# --- Workloads -------------------------------------------------------------------------------


class WorkloadSpec(Filled):
    """What all workloads have."""

    bytes: Bytes
    message: MessageBytes = DEFAULT_MESSAGE_BYTES
    hosts: Hosts | None = None
    placement: Literal["in-order", "random"] = "in-order"
    repeat: Annotated[int, Field(ge=1, le=MAX_OPERATIONS)] = 1
    every: Length | None = None
    skew: Time | None = None

    @model_validator(mode="after")
    def _consistent(self) -> WorkloadSpec:
        if self.every is not None and self.repeat == 1:
            raise KeyedError("every", "'every' without a repeat", "repeat: 10 beside it")
        if isinstance(self.hosts, list) and len(set(self.hosts)) < len(self.hosts):
            raise KeyedError("hosts", "a host stands twice")
        return self


class PointToPointSpec(WorkloadSpec):
    """One host to another."""

    elsewhere: ClassVar = dict.fromkeys(("hosts", "placement"), "from: h1, and to: h2")

    kind: Literal["point-to-point"]
    from_: Annotated[NodeName | None, Field(alias="from")] = None
    to: NodeName | None = None


class FileSpec(WorkloadSpec):
    """A file, from one host to another."""

    elsewhere: ClassVar = {
        **dict.fromkeys(("hosts", "placement"), "from: h1, and to: h2"),
        **dict.fromkeys(("repeat", "every", "skew"), "a file is sent once"),
    }

    kind: Literal["file"]
    path: Annotated[str, Field(min_length=1)]
    bytes: Bytes = MAX_BYTES  # at most
    from_: Annotated[NodeName | None, Field(alias="from")] = None
    to: NodeName | None = None
    save: Annotated[str, Field(min_length=1)] | None = None


class PermutationSpec(WorkloadSpec):
    """Every host to one other."""

    kind: Literal["permutation"]


class IncastSpec(WorkloadSpec):
    """All to one."""

    kind: Literal["incast"]
    to: NodeName | None = None


class AllToAllSpec(WorkloadSpec):
    """All to all others."""

    kind: Literal["all-to-all"]


class _RingSpec(WorkloadSpec):
    dtype: Literal["float32", "int32"] = "float32"

    @model_validator(mode="after")
    def _whole_elements(self) -> _RingSpec:
        if self.bytes % 4:
            raise KeyedError("bytes", f"{self.bytes} bytes are no whole elements of {self.dtype}")
        if self.message < 4:
            raise KeyedError("message", f"a message holds an element of {self.dtype} at least")
        return self


class RingAllReduceSpec(_RingSpec):
    """The sum, for everybody."""

    kind: Literal["ring-all-reduce"]


class RingReduceScatterSpec(_RingSpec):
    """A part of the sum each."""

    kind: Literal["ring-reduce-scatter"]


class RingAllGatherSpec(_RingSpec):
    """Everybody's part, for everybody."""

    kind: Literal["ring-all-gather"]


AnyWorkload: TypeAlias = Annotated[
    PointToPointSpec
    | FileSpec
    | PermutationSpec
    | IncastSpec
    | AllToAllSpec
    | RingAllReduceSpec
    | RingReduceScatterSpec
    | RingAllGatherSpec,
    Field(discriminator="kind"),
]

# --- Transports ------------------------------------------------------------------------------


class TransportSpec(Filled):
    """A transport, with what it is to do differently from its defaults."""

    elsewhere: ClassVar = {"interval": "options: {interval: fixed}"}

    name: str = ""
    policy: str | None = None  # FILE:CLASS, a user's own
    label: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    congestion_control: str | None = None
    framing: str | None = None
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, data: object) -> object:
        if not isinstance(data, str):
            return data
        return {"policy" if policy_file.is_reference(data) else "name": data}

    @model_validator(mode="after")
    def _fits(self) -> TransportSpec:
        if self.label is not None and not self.label.isprintable():
            raise KeyedError("label", f"{self.label!r} cannot be shown in a table")
        if self.policy is None and not self.name:
            raise UserError("a transport has a name, or a policy", hint=policy_file.EXAMPLE)
        if self.policy is not None and self.name:
            raise KeyedError("name", "'name' beside 'policy'", "label: NAME, for tables")
        return self


# --- Hosts -----------------------------------------------------------------------------------


class StallSpec(Filled):
    """A host whose timers stand still for a while: virtual clock only."""

    host: NodeName
    at: Annotated[Time, AfterValidator(_of_a_run)]
    for_: Annotated[RunTime, Field(alias="for")]


# --- The file --------------------------------------------------------------------------------


def _named_or_written(value: object) -> str:
    return "named" if isinstance(value, str) else "written"


TopologyField: TypeAlias = Annotated[
    Annotated[str, Tag("named")] | Annotated[Graph, Tag("written")],
    Discriminator(_named_or_written),
]
FaultField: TypeAlias = Annotated[
    Annotated[str, Tag("named")] | Annotated[FaultRule, Tag("written")],
    Discriminator(_named_or_written),
]


class ExperimentFile(Filled):
    """The whole file."""

    elsewhere: ClassVar = {"seed": "seeds: [1], or how many", "transport": "transports: [csa_ud]"}

    name: Annotated[str, AfterValidator(check_lab_name), name_schema(MAX_LAB_NAME)]
    topology: TopologyField
    lb: LoadBalancing | None = None
    mtu: Annotated[int, Field(ge=MTU_MIN_BYTES, le=MTU_MAX_BYTES)] | None = None
    transports: Annotated[list[TransportSpec], Field(min_length=1)]
    workload: AnyWorkload
    depth: Annotated[int, Field(ge=1, le=MAX_DEPTH)] = 4
    faults: Annotated[list[FaultField], Field(default_factory=list)]
    seeds: Seeds = [1]  # noqa: RUF012 - pydantic copies it
    clock: Clock = "virtual"
    payload: Payload = "none"
    rnic: str | None = None
    message_slots: Annotated[int, Field(ge=1, le=MAX_SLOTS)] | None = None
    stalls: Annotated[list[StallSpec], Field(default_factory=list)]
    deadline: RunTime = DEADLINE_NS
    blackout: RunTime = BLACKOUT_NS

    @model_validator(mode="after")
    def _slots_are_enough(self) -> ExperimentFile:
        slots = self.message_slots
        if slots is not None and slots.bit_count() != 1:
            raise KeyedError("message_slots", f"{slots} is no power of two")
        if slots is not None and slots < self.depth:
            raise KeyedError("message_slots", f"{slots} slots for a depth of {self.depth}")
        return self


def json_schema() -> dict[str, Any]:
    """Describe the file as JSON Schema, for editors."""
    return editor_schema(ExperimentFile, "softroce_lab experiment")
