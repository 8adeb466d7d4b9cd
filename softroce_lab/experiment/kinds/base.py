# SPDX-License-Identifier: GPL-2.0-or-later
"""What all kinds of workloads share: sizes, hosts, and what they are built from."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import (
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
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.experiment.transports.written import TransportSpec
from softroce_lab.faults.words import Filled, Length, Time
from softroce_lab.inputs.validation import KeyedError, did_you_mean
from softroce_lab.inputs.yaml_source import Place, Source
from softroce_lab.plan.effects import stream_key
from softroce_lab.plan.plan import Plan
from softroce_lab.topology.model import NodeName
from softroce_lab.topology.shapes import MAX_RAILS
from softroce_lab.workloads.message import MAX_MESSAGE_BYTES, MAX_OPERATIONS, piece_count
from softroce_lab.workloads.operations import Operations, Timeline
from softroce_lab.workloads.progress import DEPTH
from softroce_lab.workloads.streams import Stream
from softroce_lab.workloads.work import Sized, Workload

MAX_BYTES = 1 << 44
DEFAULT_MESSAGE_BYTES = 1 << 20
MOST_VERTICES = 1 << 23
"""Messages and computations of a workload: all of them are in memory, some hundred bytes each."""

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


def _hosts(value: object) -> object:
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

Rails = dict[int, tuple[int, Place]]


class Use(NamedTuple):
    """Something that an experiment executes, or a file that it reads (experiment/trust.py)."""

    place: Place  # where the experiment says so
    what: Literal["policy", "program", "payload", "file"]
    text: str  # FILE:CLASS, a command, or a path relative to the experiment's file


# --- What a workload is built from -----------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Setting:
    """The experiment around a workload, for one seed."""

    plan: Plan
    source: Source
    seed: int
    depth: int  # sends outstanding to a peer
    verified: bool  # whether every byte is checked in the end
    place: Place = ("workload",)  # of the workload in the file

    @property
    def names(self) -> list[str]:
        """Of the hosts for soft RNICs, which a workload counts from 0."""
        return [host.name for host in self.plan.plain_hosts]

    @property
    def folder(self) -> Path:
        return Path(self.source.file or "").parent.resolve()

    def error(self, key: str, what: str, hint: str | None = None) -> UserError:
        """An error at a key of the workload, with line and column."""
        return self.source.error((*self.place, key), what, hint=hint)

    def check_size(self, key: str, count: float) -> None:
        """UserError for more messages and computations than fit; known before they are made."""
        if count > MOST_VERTICES:
            what = f"about {int(count):,} messages and computations, {MOST_VERTICES:,} at most"
            raise self.error(key, what, hint="larger messages, or less to do")

    def index(self, name: str, *place: str | int) -> int:
        """A host's index by its name. UserError, at this place in the workload."""
        if name not in self.names:
            where: Place = (*self.place, *place)
            hint = did_you_mean(name, self.names)
            raise self.source.error(where, f"the topology has no host {name!r}", hint=hint)
        return self.names.index(name)


class WorkloadSpec(Filled, abc.ABC):
    """A workload as it is written."""

    usual_depth: ClassVar[int] = DEPTH
    carries_bytes: ClassVar[bool] = False  # whether `payload: verify` is the default
    default_transport: ClassVar[str | None] = None  # of files without the key `transports`

    hosts: Hosts | None = Field(
        None,
        description=(
            "How many of the first hosts take part, or a list of names. The order is that "
            "of ranks. Default: all hosts."
        ),
    )
    placement: Literal["in-order", "random"] = Field(
        "in-order", description="`random`: the seed assigns ranks to hosts."
    )
    rail: Annotated[int, Field(ge=1, le=MAX_RAILS)] | None = Field(
        None,
        description=(
            "The rail of these hosts that carries their traffic, counted from 1. Default: 1."
        ),
    )
    rails: Annotated[int, Field(ge=2, le=MAX_RAILS)] | None = Field(
        None,
        description=(
            "How many rails these hosts use at once, `rail` first. Each message takes one "
            "of them, by its number. Default: 1. Not with `shift`."
        ),
    )

    @model_validator(mode="after")
    def _hosts_once(self) -> WorkloadSpec:
        if isinstance(self.hosts, list) and len(set(self.hosts)) < len(self.hosts):
            raise KeyedError("hosts", "a host stands twice")
        return self

    def spread(self, work: Workload, place: Place = ("workload",)) -> Rails:
        """Of hosts that use several rails at once, how many, and where that is written."""
        return (
            {} if self.rails is None else dict.fromkeys(work.ranks, (self.rails, (*place, "rails")))
        )

    def rails_of(self, work: Workload, place: Place = ("workload",)) -> Rails:
        """Of each host the rail that it uses, counted from 0, and where that is written."""
        if self.rail is None:
            return {}
        return dict.fromkeys(work.ranks, (self.rail - 1, (*place, "rail")))

    @property
    def own_transports(self) -> Mapping[str, tuple[Place, TransportSpec]]:
        """Of jobs that have one of their own, by name: where it is written, and what."""
        return {}

    @property
    def has_transports(self) -> bool:
        """Whether no host is left that takes the experiment's."""
        return False

    def fitted(self, transport: Transport) -> Transport:
        """The transport as this workload uses it.

        UserError, KeyedError with a key of the transport, for one that the workload cannot use.
        """
        return transport

    def uses(self, place: Place) -> Iterator[Use]:
        """The programs that it executes, and the files that it reads. `place`: its own."""
        yield from ()

    @abc.abstractmethod
    def build(self, setting: Setting) -> Workload:
        """The workload. UserError with line and column for what does not fit the topology."""

    def ranks(self, setting: Setting) -> tuple[int, ...]:
        """The hosts that take part, in the order of their ranks. UserError."""
        chosen = self.chosen(setting)
        if self.placement == "random":
            order = Stream(stream_key(setting.seed, "placement")).permutation(len(chosen))
            chosen = [chosen[place] for place in order]
        return tuple(chosen)

    def chosen(self, setting: Setting) -> list[int]:
        """The hosts that take part, as written. UserError."""
        names = setting.names
        if len(names) < 2:
            wanted = self.hosts if isinstance(self.hosts, int) else 2
            what = f"the workload needs {wanted} hosts, and the topology has {len(names)}"
            raise setting.source.error(("topology",), what)
        if isinstance(self.hosts, list):
            return [setting.index(each, "hosts", n) for n, each in enumerate(self.hosts)]
        count = self.hosts or len(names)
        if count > len(names):
            raise setting.error("hosts", f"{count} hosts, and the topology has {len(names)}")
        return list(range(count))


def warm_up_field(operations: str) -> Any:
    """The key `warm_up` of a workload of these operations."""
    return Field(
        0,
        ge=0,
        lt=MAX_OPERATIONS,
        description=(
            f"Number of further {operations} before the others, under the same faults. Figures of "
            "messages and times leave them out."
        ),
    )


class RepeatedSpec(WorkloadSpec):
    """A workload of so many bytes, once or several times over."""

    whole_vector: ClassVar = False  # whether `bytes` is a vector of all hosts together

    bytes: Bytes = Field(
        description="Bytes of each flow. Of a collective: the whole vector of a host."
    )
    message: MessageBytes = Field(
        DEFAULT_MESSAGE_BYTES,
        description=(
            "Largest message. Flows, chunks of collectives and buckets are cut into "
            "messages of this size."
        ),
    )
    repeat: Annotated[
        int,
        Field(
            ge=1,
            le=MAX_OPERATIONS,
            description=(
                "Number of operations. A host begins one when it has received all data of the "
                "operation before."
            ),
        ),
    ] = 1
    warm_up: int = warm_up_field("operations")
    every: Length | None = Field(
        None,
        description=(
            "Earliest start of operation n: n times this time. Operations of the warm-up count."
        ),
    )
    skew: Time | None = Field(
        None,
        description=(
            "Largest extra delay of each host's start of an operation, drawn from the seed."
        ),
    )

    @model_validator(mode="after")
    def _consistent(self) -> RepeatedSpec:
        if self.every is not None and self.repeat + self.warm_up == 1:
            raise KeyedError("every", "'every' without a repeat", "repeat: 10 beside it")
        if self.repeat + self.warm_up > MAX_OPERATIONS:
            raise KeyedError("warm_up", f"more than {MAX_OPERATIONS:,} operations with 'repeat'")
        return self

    def build(self, setting: Setting) -> Workload:
        timeline = Timeline(self.every or 0, self.skew or 0, setting.seed)
        ranks, times = self.ranks(setting), self.warm_up + self.repeat
        if self.whole_vector:  # every piece comes to all hosts but one
            least = (len(ranks) - 1) * piece_count(self.bytes, self.message)
            setting.check_size("bytes", times * least)
        once = self.once(setting, ranks)
        setting.check_size("bytes", times * once.message_count)
        return Operations(once, times, timeline, self.warm_up)

    @abc.abstractmethod
    def once(self, setting: Setting, ranks: Sequence[int]) -> Sized:
        """One operation. UserError."""
