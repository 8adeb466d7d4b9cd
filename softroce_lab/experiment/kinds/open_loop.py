# SPDX-License-Identifier: GPL-2.0-or-later
"""Open-loop traffic at a load, with sizes of a distribution, and incasts among it."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, ClassVar, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    Tag,
    model_validator,
)

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.experiment.kinds.base import MessageBytes, Setting, WorkloadSpec
from softroce_lab.faults.words import Filled, Length, Probability
from softroce_lab.inputs.validation import did_you_mean
from softroce_lab.plan import base_rtt
from softroce_lab.plan.plan import Node
from softroce_lab.workloads.open_loop import IncastMix, OpenLoop
from softroce_lab.workloads.sizes import PUBLISHED, Sizes

USUAL_INCAST_BYTES = 64_000


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.10g}%"


def _above_0(share: Fraction) -> Fraction:
    if not share:
        raise UserError("0 % is nothing at all", hint="above 0%, and at most 100%")
    return share


Share = Annotated[Probability, AfterValidator(_above_0), PlainSerializer(_percent, return_type=str)]

# --- Sizes -----------------------------------------------------------------------------------


def _known(name: str) -> str:
    if name not in PUBLISHED:
        near = did_you_mean(name, PUBLISHED)
        raise UserError(f"no distribution of sizes is called {name!r}", hint=near)
    return name


def _not_empty(sizes: list[int]) -> list[int]:
    Sizes.of_list(sizes)  # ValueError
    return sizes


class RangeSpec(Filled):
    """All sizes of a range are equally frequent."""

    from_: Annotated[MessageBytes, Field(alias="from", description="Smallest size.")]
    to: MessageBytes = Field(description="Largest size.")

    def sizes(self) -> Sizes:
        """ValueError if the range is empty."""
        return Sizes.of_range(self.from_, self.to)

    @model_validator(mode="after")
    def _is_distribution(self) -> RangeSpec:
        self.sizes()
        return self


def _point(value: object) -> tuple[int, Fraction]:
    if not isinstance(value, list) or len(value) != 2:
        raise UserError("a point is a size and a percentage", hint="such as [10kB, 15%]")
    return units.parse_bytes(str(value[0])), units.parse_percent(str(value[1]))


_Point = Annotated[
    tuple[int, Fraction],
    PlainValidator(_point, json_schema_input_type=list[str]),
    PlainSerializer(lambda at: [f"{at[0]}B", _percent(at[1])], return_type=list[str]),
]


class PointsSpec(Filled):
    """Sizes are distributed evenly between the points of a cumulative distribution."""

    points: list[_Point] = Field(
        description="Points of a cumulative distribution: `[[0B, 0%], [10kB, 15%], [1MB, 100%]]`."
    )

    def sizes(self) -> Sizes:
        """ValueError for what is no distribution."""
        return Sizes.of_points(self.points)

    @model_validator(mode="after")
    def _is_distribution(self) -> PointsSpec:
        self.sizes()
        return self


def _form(value: object) -> str:
    """Which form of sizes is written."""
    if isinstance(value, str):
        return "published"
    if isinstance(value, list):
        return "listed"
    points = isinstance(value, PointsSpec) or (isinstance(value, dict) and "points" in value)
    return "points" if points else "range"


SizesSpec = Annotated[
    Annotated[str, AfterValidator(_known), Tag("published")]
    | Annotated[list[MessageBytes], AfterValidator(_not_empty), Tag("listed")]
    | Annotated[RangeSpec, Tag("range")]
    | Annotated[PointsSpec, Tag("points")],
    Discriminator(_form),
]


def sizes_of(written: str | list[int] | RangeSpec | PointsSpec) -> Sizes:
    """The distribution that is written so."""
    if isinstance(written, str):
        return Sizes.published(written)
    if isinstance(written, list):
        return Sizes.of_list(written)
    return written.sizes()


# --- The workload ----------------------------------------------------------------------------


class IncastMixSpec(Filled):
    """Incasts: several hosts send to one host at the same moment."""

    degree: Annotated[int, Field(ge=1, description="Senders of an incast.")]
    share: Share = Field(description="Share of the load that incasts have.")
    bytes: MessageBytes = Field(USUAL_INCAST_BYTES, description="Bytes of each sender.")

    @model_validator(mode="after")
    def _leaves_a_share(self) -> IncastMixSpec:
        if self.share == 1:
            raise UserError("incasts are all of the load", hint="less than 100%, or kind: incast")
        return self


class OpenLoopSpec(WorkloadSpec):
    """Flows arrive at drawn times, also while earlier flows are still running."""

    usual_depth: ClassVar = 256
    elsewhere: ClassVar = {
        **dict.fromkeys(("bytes", "message"), "sizes: web-search; a flow is one message"),
        **dict.fromkeys(("repeat", "every", "skew"), "duration: 20ms; flows arrive all the time"),
        "warm_up": "the first fifth of 'duration' is the warm-up",
    }

    kind: Literal["open-loop"]
    load: Share = Field(
        description=(
            "Bytes of the flows, over what the links of the hosts carry in `duration`. "
            "Headers come on top."
        )
    )
    sizes: SizesSpec = Field(
        description=(
            "Sizes of flows: `web-search`, `hadoop`, `ali-storage`, a list, a range "
            "`{from, to}`, or `{points: ...}`."
        )
    )
    duration: Length = Field(description="Time in which flows arrive.")
    incast: IncastMixSpec | None = Field(
        None, description="Incasts among the flows. Default: none."
    )

    def build(self, setting: Setting) -> OpenLoop:
        ranks = self.ranks(setting)
        mix = self._mix(setting, len(ranks))
        rail = (self.rail or 1) - 1
        rates = tuple(_rate_bps(setting, setting.plan.plain_hosts[host], rail) for host in ranks)
        sizes = sizes_of(self.sizes)
        self._check_size(setting, sum(rates), sizes, mix)
        work = OpenLoop(ranks, rates, self.load, self.duration, sizes, mix, setting.seed)
        try:
            _ = work.flows
        except ValueError as error:
            what = f"{error}: too few flows arrive in {units.format_duration(self.duration)}"
            raise setting.error("duration", what, "a longer one") from None
        return work

    def _check_size(
        self, setting: Setting, rate_bps: int, sizes: Sizes, mix: IncastMix | None
    ) -> None:
        all_bytes = self.load * rate_bps * self.duration / (8 * 10**9)
        incasts = all_bytes * mix.share / mix.size_bytes if mix else Fraction(0)
        singles = all_bytes * (1 - mix.share if mix else 1) / sizes.mean_bytes
        setting.check_size("incast" if incasts > singles else "duration", float(incasts + singles))

    def _mix(self, setting: Setting, hosts: int) -> IncastMix | None:
        if self.incast is None:
            return None
        if self.incast.degree >= hosts:
            what = f"{self.incast.degree} senders to one host, and there are {hosts} hosts in all"
            raise setting.source.error((*setting.place, "incast", "degree"), what)
        return IncastMix(self.incast.degree, self.incast.share, self.incast.bytes)


def _rate_bps(setting: Setting, host: Node, rail: int) -> int:
    """Of the host's link, the slower way. UserError if nothing limits it."""
    rates = base_rtt.rates(setting.plan)
    port = host.ports[min(rail, len(host.ports) - 1)]  # that it has too few is found later
    both = [rates[number] for number, *ends in setting.plan.halves if port in ends]
    if not all(both):
        what = f"the link of {host.name} has no rate, which a load is a share of"
        raise setting.source.error(("topology",), what, hint="rate: 25Gbit on the hosts' links")
    return min(both)
