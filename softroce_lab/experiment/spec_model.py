# SPDX-License-Identifier: GPL-2.0-or-later
"""The experiment file as it is written; docs/reference/experiments.md is its reference.

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
    Tag,
    model_validator,
)

from softroce_lab.errors import UserError
from softroce_lab.experiment.gates import expect
from softroce_lab.experiment.kinds.table import AnyWorkload
from softroce_lab.experiment.transports.written import TransportSpec
from softroce_lab.faults.model import FaultRule, name_schema
from softroce_lab.faults.sentence import is_sentence
from softroce_lab.faults.words import Filled, Length, Time
from softroce_lab.inputs.validation import KeyedError, editor_schema
from softroce_lab.plan.plan import LoadBalancing
from softroce_lab.topology.model import (
    MAX_LAB_NAME,
    MTU_MAX_BYTES,
    MTU_MIN_BYTES,
    SEED_MAX,
    Graph,
    NodeName,
    check_lab_name,
)
from softroce_lab.transports.defaults import BLACKOUT_NS

MAX_SEEDS = 1 << 20
MAX_DEPTH = 256
MAX_SLOTS = 1 << 16
DEADLINE_NS = 10 * 10**9
MAX_DEADLINE_NS = 10**6 * 10**9  # native time is 64 bits of picoseconds: 106 days

Clock: TypeAlias = Literal["virtual", "real"]
Payload: TypeAlias = Literal["none", "verify"]

# --- Quantities ------------------------------------------------------------------------------


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

Expected = Annotated[dict[str, bool | str], AfterValidator(expect.checked)]
"""Gates: conditions by figure (`expect.py`)."""

# --- Hosts -----------------------------------------------------------------------------------


class StallSpec(Filled):
    """A host whose timers stand still for a time, on the virtual clock."""

    host: NodeName = Field(description="The host whose timers stand still.")
    at: Annotated[Time, AfterValidator(_of_a_run)] = Field(description="When, since the run began.")
    for_: Annotated[RunTime, Field(alias="for", description="For how long.")]


# --- The file --------------------------------------------------------------------------------


def _named_or_written(value: object) -> str:
    return "named" if isinstance(value, str) and not is_sentence(value) else "written"


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

    name: Annotated[str, AfterValidator(check_lab_name), name_schema(MAX_LAB_NAME)] = Field(
        description="Name of the run directory and, on the real clock, of the lab."
    )
    topology: TopologyField = Field(
        description="A built-in topology, a topology file, a generator, or nodes and links."
    )
    lb: LoadBalancing | None = Field(
        None, description="As in a topology file; overrides that of a named topology."
    )
    mtu: Annotated[int, Field(ge=MTU_MIN_BYTES, le=MTU_MAX_BYTES)] | None = Field(
        None, description="As in a topology file; overrides that of a named topology."
    )
    transports: Annotated[list[TransportSpec], Field(min_length=1)] | None = Field(
        None,
        description=(
            "The transports to run: a list of names or maps. Required, except for "
            "jobs that each have their own, and for programs, whose default is `[rc]`."
        ),
    )
    workload: AnyWorkload = Field(description="What the hosts send.")
    depth: Annotated[int, Field(ge=1, le=MAX_DEPTH)] | None = Field(
        None,
        description=(
            "Maximum of outstanding sends from a host to a peer. Twice as many receives "
            "are posted. Default: 4; of `open-loop` 256."
        ),
    )
    faults: Annotated[
        list[FaultField],
        Field(
            default_factory=list,
            description=(
                "Names of fault profiles, rules and sentences. They are added to the "
                "topology's own."
            ),
        ),
    ]
    seeds: Seeds = Field([1], description="How many seeds, counted from 1, or a list of seeds.")
    clock: Clock = Field(
        "virtual",
        description=(
            "`virtual`: a deterministic simulation. `real`: this machine, with "
            "namespaces, veth and XDP."
        ),
    )
    payload: Payload = Field(
        "none",
        description=(
            "`none`: simulated packets have a length and no bytes. `verify`: packets "
            "carry bytes, and each host compares what it received. The real clock always "
            "verifies."
        ),
    )
    rnic: str | None = Field(
        None, description="Limits of the RNIC by name, on the virtual clock. Default: no limits."
    )
    message_slots: Annotated[int, Field(ge=1, le=MAX_SLOTS)] | None = Field(
        None,
        description=(
            "Maximum of outstanding messages to a peer, on the virtual clock, of all "
            "transports but `rc` and `shift`: a power of two, at least `depth`. Default: "
            "1024."
        ),
    )
    stalls: Annotated[
        list[StallSpec],
        Field(
            default_factory=list,
            description="Hosts whose timers stand still for a time, on the virtual clock.",
        ),
    ]
    deadline: RunTime = Field(
        DEADLINE_NS, description="Longest duration of a run, on its clock. A longer run has failed."
    )
    blackout: RunTime = Field(
        BLACKOUT_NS,
        description=(
            "The longest outage that costs no message, on the virtual clock, with "
            "`csa_ud`, `ud_rto`, `sdr_sr` and `sdr_sr_nack`."
        ),
    )
    expect: Expected = Field(
        default_factory=dict,
        description=(
            "Gates: conditions that figures must meet, such as `csa_ud.fct_p99 / "
            'irn.fct_p99: "< 0.7"`.'
        ),
    )

    @model_validator(mode="after")
    def _all_hosts_have_a_transport(self) -> ExperimentFile:
        needs_none = self.workload.has_transports or self.workload.default_transport is not None
        if self.transports is None and not needs_none:
            raise UserError("key 'transports' is missing")
        if self.transports is not None and self.workload.has_transports:
            what = "every job has a transport of its own"
            raise KeyedError("transports", what, "leave out 'transports', or that of a job")
        return self

    @model_validator(mode="after")
    def _slots_are_enough(self) -> ExperimentFile:
        slots = self.message_slots
        if slots is not None and slots.bit_count() != 1:
            raise KeyedError("message_slots", f"{slots} is no power of two")
        depth = self.depth or self.workload.usual_depth
        if slots is not None and slots < depth:
            raise KeyedError("message_slots", f"{slots} slots for a depth of {depth}")
        return self


def json_schema() -> dict[str, Any]:
    """Describe the file as JSON Schema, for editors."""
    return editor_schema(ExperimentFile, "softroce_lab experiment")
