# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults as they are written: tc-netem's words, Lumina's named packets, a target, a timeline.

docs/reference/faults.md is the reference. What follows from several rules together, or from the
topology, is `resolve`'s and `check`'s to find.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema

from softroce_lab.errors import UserError
from softroce_lab.faults import sentence
from softroce_lab.faults.drops import QPN_MAX, DropEvent, Kinds
from softroce_lab.faults.targets import Links, Nodes, Ports
from softroce_lab.faults.words import (
    NUMBER_MAX,
    NUMBER_SCHEMA,
    Compact,
    DelayTime,
    DepthField,
    Filled,
    Length,
    Probability,
    Rate,
    Time,
    TrimField,
    TrimShare,
    number,
)
from softroce_lab.inputs.validation import KeyedError
from softroce_lab.plan.effects import (
    Blackout,
    Burst,
    Distribution,
    FaultKey,
    Gemodel,
    LossModel,
    Periodic,
    RandomLoss,
    Window,
)
from softroce_lab.plan.effects import Loss as LossEffect
from softroce_lab.units import threshold

MAX_RULE_NAME = 32

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*", re.ASCII)


def check_name(name: str, what: str, longest: int) -> str:
    """Return `name` if it is made of a-z, 0-9 and '-' and not too long; UserError otherwise."""
    if len(name) > longest:
        raise UserError(f"{what} {name!r} is longer than {longest} characters")
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{what} {name!r} is not allowed",
            hint="use a-z, 0-9 and '-', beginning with a letter or a digit",
        )
    return name


def name_schema(longest: int) -> WithJsonSchema:
    """Describe to editors what `check_name` accepts."""
    return WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$", "maxLength": longest})


def _listed(value: object) -> object:
    return value if value is None or isinstance(value, list) else [value]


# --- Models of loss --------------------------------------------------------------------------


class GemodelSpec(Compact):
    """The Gilbert-Elliott model, as tc-netem's `gemodel p [r [1-h [1-k]]]`."""

    positional: ClassVar = ("p", "r", "1-h", "1-k")

    p: Probability = Field(description="Probability to go from good to bad, after each packet.")
    r: Probability | None = Field(
        None, description="Probability to go from bad to good. Default: 1 - p."
    )
    loss_bad: Annotated[
        Probability | None,
        Field(alias="1-h", description="Probability of a loss in the bad state. Default: 100 %."),
    ] = None  # 100 %
    loss_good: Annotated[
        Probability | None,
        Field(alias="1-k", description="Probability of a loss in the good state. Default: 0 %."),
    ] = None  # 0 %

    @property
    def effect(self) -> Gemodel:
        """With what netem takes for the parameters that are left out."""
        r = 1 - self.p if self.r is None else self.r
        loss_bad = Fraction(1) if self.loss_bad is None else self.loss_bad
        loss_good = Fraction(0) if self.loss_good is None else self.loss_good
        return Gemodel(threshold(self.p), threshold(r), threshold(loss_bad), threshold(loss_good))


class BurstSpec(Compact):
    """Bursts of exactly `length` packets, which are `rate` of all packets in total."""

    positional: ClassVar = ("rate", "length")

    rate: Probability = Field(description="Share of all packets that bursts drop.")
    length: Annotated[int, number("length", 1, QPN_MAX), NUMBER_SCHEMA] = Field(
        description="Packets of a burst."
    )

    @property
    def effect(self) -> Burst:
        """A packet outside of a burst begins one so often that bursts take `rate` of all packets.

        Between two bursts of L packets lie (1-q)/q others on average: rate = Lq / (Lq + 1 - q).
        """
        q = self.rate / (self.length * (1 - self.rate) + self.rate)
        if q and not threshold(q):
            raise UserError("bursts so rare cannot be expressed in 64 bits")
        return Burst(threshold(q), self.length)


class PeriodicSpec(Compact):
    """`length` of every `every` packets are dropped, from number `offset` on."""

    positional: ClassVar = ("every", "length", "offset")

    every: Annotated[int, number("every", 1, NUMBER_MAX), NUMBER_SCHEMA] = Field(
        description="Packets of a period."
    )
    length: Annotated[int, number("length", 1, NUMBER_MAX), NUMBER_SCHEMA] = Field(
        1, description="Packets of each period that are dropped."
    )
    offset: Annotated[int, number("offset", 0, NUMBER_MAX), NUMBER_SCHEMA] = Field(
        0, description="First packet of a period that is dropped; the first packet is 0."
    )

    @model_validator(mode="after")
    def _fits(self) -> PeriodicSpec:
        if self.length > self.every:
            raise KeyedError("length", f"length {self.length} is more than every {self.every}")
        if self.offset >= self.every:
            what = f"offset {self.offset} is not below every {self.every}"
            raise KeyedError("offset", what, "the first packet of a period is 0")
        return self

    @property
    def effect(self) -> Periodic:
        """As it is written."""
        return Periodic(self.every, self.length, self.offset)


_LOSS_MODELS: Mapping[str, type[LossModel]] = {
    "random": RandomLoss,
    "gemodel": Gemodel,
    "burst": Burst,
    "periodic": Periodic,
    "blackout": Blackout,
}


class Loss(Compact):
    """Lost packets. A loss has exactly one model."""

    not_yet: ClassVar = {"state": "gemodel has states, burst and periodic have runs"}
    elsewhere: ClassVar = {"ecn": "ecn marks at a queue: rate: 200Mbit ecn 30"}

    random: Probability | None = Field(
        None, description="Each packet is dropped independently, with this probability."
    )
    gemodel: GemodelSpec | None = Field(
        None, description="Gilbert-Elliott chain of two states, as in tc-netem."
    )
    burst: BurstSpec | None = Field(
        None,
        description=(
            "Runs of exactly `length` packets, which are `rate` of all packets in total. "
            "Two runs may be adjacent."
        ),
    )
    periodic: PeriodicSpec | None = Field(None, description="`length` of every `every` packets.")
    blackout: bool = Field(
        False,
        description="Every packet is dropped while the link stays up, so routes do not change.",
    )

    @classmethod
    def read_words(cls, words: list[str]) -> dict[str, Any]:
        """`random 1%`, `gemodel 1% 25%` and, as tc has it, `1%`."""
        word, *rest = words if words and words[0][:1].isalpha() else ["random", *words]
        if word == "random" and len(rest) > 1:
            if rest[1][:1].isalpha():
                raise UserError(f"unexpected {rest[1]!r} after a loss", hint="a percentage is all")
            what = "loss random with a correlation is not supported"
            raise UserError(what, hint="loss gemodel and loss burst make runs")
        if word == "blackout":
            if rest:
                raise UserError(f"unexpected {rest[0]!r} after blackout")
            return {word: True}
        return {word: " ".join(rest)}

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._given()[0]

    @property
    def remembers(self) -> bool:
        """Whether the model depends on the packets before."""
        return _LOSS_MODELS[self.model].remembers

    @property
    def effect(self) -> LossEffect:
        """What is written, in thresholds. UserError for what they cannot express."""
        given = getattr(self, self.model)
        if isinstance(given, Fraction):
            return RandomLoss(threshold(given))
        return Blackout() if isinstance(given, bool) else cast("LossEffect", given.effect)

    def _given(self) -> list[str]:
        given = [key for key in _LOSS_MODELS if key in self.model_fields_set]
        return given if self.blackout else [key for key in given if key != "blackout"]

    @model_validator(mode="after")
    def _one_model(self) -> Loss:
        given = self._given()
        if not given:
            raise UserError("loss has no model", hint=f"known: {', '.join(_LOSS_MODELS)}")
        if len(given) > 1:
            what = f"loss {given[1]} contradicts loss {given[0]}"
            raise KeyedError(given[1], what, "one model a loss")
        return self


# --- What else happens -----------------------------------------------------------------------


class CutSpec(Compact):
    """Packets cut to their headers, as a queue with `trim` cuts them."""

    positional: ClassVar = ("percent",)

    percent: Probability = Field(
        description=(
            "Probability that a packet is cut. A packet of a striped message arrives without its "
            "payload. Another packet has no payload to cut and is dropped. A packet that was cut "
            "before passes."
        )
    )


class CorruptSpec(Compact):
    """Packets with a flipped bit."""

    positional: ClassVar = ("percent",)

    percent: Probability = Field(
        description=(
            "Probability that one bit of a packet flips. The receiver drops the packet "
            "and counts it."
        )
    )


class DuplicateSpec(Compact):
    """Packets that arrive twice."""

    positional: ClassVar = ("percent",)

    percent: Probability = Field(description="Probability that a second copy follows directly.")


class ReorderSpec(Compact):
    """Packets that leave out of order."""

    positional: ClassVar = ("percent",)

    percent: Probability = Field(description="Probability that a packet is chosen.")
    gap: Annotated[int, number("gap", 0, NUMBER_MAX), NUMBER_SCHEMA] = Field(
        0, description="The rule skips the first `gap` - 1 packets after a chosen one."
    )
    by: DelayTime | None = Field(
        None,
        description=(
            "Chosen packets wait this much longer. Default: chosen packets skip the link's `delay`."
        ),
    )


class DelaySpec(Compact):
    """Propagation delay."""

    positional: ClassVar = ("delay", "jitter")

    delay: DelayTime = Field(description="Propagation delay, at most one hour.")
    jitter: DelayTime | None = Field(
        None, description="Each packet takes the delay plus or minus a drawn time up to this one."
    )
    distribution: Distribution | None = Field(
        None,
        description="Distribution of the jitter: `uniform` (the default), `normal` or `pareto`.",
    )
    reorder: Literal["allow", "preserve"] = Field(
        "preserve",
        description="`allow`: a packet may overtake another by jitter. `preserve`: it waits.",
    )


class QueueSpec(Compact):
    """A transmitter that sends one frame at a time, and the queue in front of it."""

    positional: ClassVar = ("rate",)
    flags: ClassVar = ("trim",)
    sized: ClassVar = ("trim",)

    rate: Rate = Field(
        description=(
            "Rate of the transmitter. It counts the Ethernet header, not the preamble and "
            "the FCS. At most 10 Tbit."
        )
    )
    limit: DepthField | None = Field(
        None,
        description=(
            "Size of the queue in packets or bytes, without the frame in transmission. "
            "Default: 1000 packets."
        ),
    )
    ecn: DepthField | None = Field(
        None,
        description="An ECN-capable packet that finds this much in the queue is marked with CE.",
    )
    trim: TrimField = Field(
        False,
        description=(
            "A full queue cuts the payload of a frame and sends the header with priority, "
            "instead of dropping the frame. With a number of packets or a size, the queue "
            "trims from so much on, and drops only what has no payload to cut."
        ),
    )
    trim_share: TrimShare | None = Field(
        None,
        description=(
            "Share of the rate that headers of trimmed frames get while others wait, at most. "
            "Default: 50%, as in UET 1.0. `100%` is strict priority."
        ),
    )
    queue: Literal["uet"] | None = Field(
        None,
        description=(
            "Sizes in bandwidth-delay products: the link's rate times the base RTT of the fabric. "
            "`uet` follows UET 1.0: `trim` at 1, at 1.5 if the link leads to a host; `limit` at "
            "5; `ecn` at 0.5, the middle of UET's ramp from 0.2 to 0.8, which is one threshold "
            "here. The other keys override it."
        ),
    )


BESIDE = {
    "delay": ("jitter", "distribution"),
    "rate": ("limit", "ecn", "trim", "trim_share", "queue"),
}
_LINES = {"delay": "delay: 10ms", "rate": "rate: 200Mbit"}
EFFECTS = ("down", "drop", "loss", "cut", "corrupt", "duplicate", "reorder", "rate", "delay")
_UNFILTERED = ("down", "rate", "delay")


class Impairments(Filled):
    """What can go wrong on a link."""

    not_yet: ClassVar = {"slot": "delay with jitter, and rate, shape traffic too"}
    elsewhere: ClassVar = {"gap": "gap belongs to reorder: reorder: 25% gap 5"}

    down: bool | None = Field(
        None,
        description="The link is down in both directions. It passes nothing, and routes avoid it.",
    )
    drop: (
        Annotated[
            list[DropEvent],
            BeforeValidator(_listed, json_schema_input_type=DropEvent | list[DropEvent]),
            Field(min_length=1),
        ]
        | None
    ) = Field(
        None,
        description="Packets by name, or all packets that match a filter: one entry or a list.",
    )
    loss: Loss | None = Field(
        None,
        description=(
            "Lost packets, by one model: `random P`, `gemodel P [R [1-H [1-K]]]`, `burst "
            "RATE LENGTH`, `periodic EVERY [LENGTH [OFFSET]]`, `blackout`."
        ),
    )
    cut: CutSpec | None = Field(None, description="Packets cut to their headers: `P`.")
    corrupt: CorruptSpec | None = Field(None, description="Packets with a flipped bit: `P`.")
    duplicate: DuplicateSpec | None = Field(None, description="Packets that arrive twice: `P`.")
    reorder: ReorderSpec | None = Field(
        None, description="Packets that leave out of turn: `P [gap N] [by TIME]`."
    )
    rate: QueueSpec | None = Field(
        None,
        description=(
            "A transmitter and its queue: `RATE [limit L] [ecn E] [trim [T]] [trim_share P] "
            "[queue uet]`."
        ),
    )
    limit: DepthField | None = Field(None, description="`limit` of `rate`, as a key of its own.")
    ecn: DepthField | None = Field(None, description="`ecn` of `rate`, as a key of its own.")
    trim: TrimField | None = Field(None, description="`trim` of `rate`, as a key of its own.")
    trim_share: TrimShare | None = Field(
        None, description="`trim_share` of `rate`, as a key of its own."
    )
    queue: Literal["uet"] | None = Field(
        None, description="`queue` of `rate`, as a key of its own."
    )
    delay: DelaySpec | None = Field(
        None,
        description=(
            "Propagation delay: `TIME [JITTER] [distribution D] [reorder allow|preserve]`."
        ),
    )
    jitter: DelayTime | None = Field(None, description="`jitter` of `delay`, as a key of its own.")
    distribution: Distribution | None = Field(
        None, description="`distribution` of `delay`, as a key of its own."
    )
    only: Kinds | None = Field(
        None,
        description=(
            "Restricts `loss`, `drop`, `cut`, `corrupt`, `duplicate` and `reorder` to packets of "
            "these kinds: `data`, `control`, `probe`, `report`, `other`."
        ),
    )

    @property
    def whole_delay(self) -> DelaySpec | None:
        """The delay with the keys that stand beside it."""
        return self.delay and self.delay.model_copy(update=self._beside("delay"))

    @property
    def whole_rate(self) -> QueueSpec | None:
        """The rate with the keys that stand beside it."""
        return self.rate and self.rate.model_copy(update=self._beside("rate"))

    def _beside(self, word: str) -> dict[str, Any]:
        given = {key: getattr(self, key) for key in BESIDE[word]}
        return {key: value for key, value in given.items() if value is not None}

    @property
    def words(self) -> tuple[str, ...]:
        """The effects that it names."""
        return tuple(word for word in EFFECTS if getattr(self, word) is not None)

    @model_validator(mode="after")
    def _consistent(self) -> Impairments:
        self._check_beside()
        delay = self.whole_delay
        if delay is not None and delay.distribution is not None and not delay.jitter:
            key = "delay" if self.distribution is None else "distribution"
            raise KeyedError(key, "a distribution needs a jitter", "delay: 10ms 2ms")
        rate = self.whole_rate
        if rate is not None and rate.trim_share is not None and not (rate.trim or rate.queue):
            key = "rate" if self.trim_share is None else "trim_share"
            raise KeyedError(key, "'trim_share' without trim", "rate: 200Mbit limit 100 trim 50")
        self._check_only()
        return self

    def _check_beside(self) -> None:
        for word, keys in BESIDE.items():
            spec = getattr(self, word)
            for key in keys:
                if getattr(self, key) is None:
                    continue
                if spec is None:
                    what = f"{key!r} without a {word}"
                    raise KeyedError(key, what, f"such as {_LINES[word]} beside it")
                if key in spec.model_fields_set:
                    raise KeyedError(key, f"{key!r} stands twice, here and in {word!r}")

    def _check_only(self) -> None:
        if self.only is None:
            return
        for word in _UNFILTERED:
            if getattr(self, word) is not None:
                what = f"'only' does not go with {word!r}, which acts on every packet"
                raise KeyedError("only", what, "give it a rule of its own")
        for event in self.drop or ():
            if event.named or event.only is not None:
                what = "'only' does not go with a drop that says itself which packets"
                raise KeyedError("only", what)
        if not self.words:
            raise KeyedError("only", "'only' without anything that happens to packets")


class LinkImpairments(Impairments):
    """Effects of a link. Effects next to `forward` and `backward` act in both directions."""

    elsewhere: ClassVar = {
        **Impairments.elsewhere,
        **dict.fromkeys(("at", "for", "every", "key"), "it belongs to a rule under faults"),
    }

    forward: Impairments | None = Field(
        None,
        description=(
            "Impairments of the direction from the first endpoint to the second. Of a "
            "class of links: away from the hosts."
        ),
    )
    backward: Impairments | None = Field(None, description="Impairments of the other direction.")


# --- Rules -----------------------------------------------------------------------------------


def _check_rule_name(name: str) -> str:
    return check_name(name, "rule name", MAX_RULE_NAME)


_TARGETS = ("links", "nodes", "ports", "nics")


class FaultRule(Impairments):
    """Effects on the links that a pattern chooses, with a timeline; or a sentence about a NIC."""

    elsewhere: ClassVar = {
        **Impairments.elsewhere,
        "on": "links, nodes or ports say where: links: 'leaf*<->spine*'",
        **dict.fromkeys(sentence.TARGETS, f"in a sentence: {sentence.EXAMPLE}"),
    }

    name: Annotated[str, AfterValidator(_check_rule_name), name_schema(MAX_RULE_NAME)] = Field(
        description=(
            "Name of the rule in reports, and key of its random decisions: `a-z 0-9 -`, "
            "at most 32 characters, used once."
        )
    )
    links: Links | None = Field(
        None,
        description=(
            "Pattern of links: `a->b` is one direction, `a<->b` both. Names are globs, "
            "and either side may be a port, `h*:eth2`. Or a list of patterns."
        ),
    )
    nodes: Nodes | None = Field(
        None, description="Pattern of nodes: all links of these nodes, in both directions."
    )
    ports: Ports | None = Field(
        None,
        description=(
            "Pattern of ports, such as `h1:eth2`: the links at these ports, in both directions."
        ),
    )
    nics: Ports | None = Field(None, description="As `ports`, for ports of hosts only.")
    key: FaultKey | None = Field(
        None,
        description=(
            "`identity`: the seed, the rule and the packet's name decide. `index`: the "
            "seed, the rule, the link and the number of earlier packets decide. Default: "
            "`index` for `gemodel`, `burst`, `periodic` and a `reorder` with a gap, else "
            "`identity`."
        ),
    )
    at: Time | None = Field(
        None,
        description=(
            "When the rule begins to act, since the beginning of the timeline. Default: 0."
        ),
    )
    for_: Annotated[
        Length | None,
        Field(alias="for", description="How long the rule acts. Default: without end."),
    ] = None
    every: Length | None = Field(
        None, description="Time from one beginning to the next. Default: once."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_sentence(cls, data: object) -> object:
        return sentence.read(str(data)) if sentence.is_sentence(data) else data

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        keyed = super().__get_pydantic_json_schema__(core_schema, handler)
        return {"anyOf": [{"type": "string", "pattern": "^(nic|port) "}, keyed]}

    @property
    def target(self) -> str:
        """The key that chooses the links."""
        return next(key for key in _TARGETS if getattr(self, key) is not None)

    @property
    def window(self) -> Window:
        """When it acts."""
        return Window(self.at or 0, self.for_ or 0, self.every or 0)

    @model_validator(mode="after")
    def _whole_rule(self) -> FaultRule:
        targets = [key for key in _TARGETS if getattr(self, key) is not None]
        if not targets:
            raise UserError("the rule has no target", hint="links: 'leaf*<->spine*'")
        if len(targets) > 1:
            raise KeyedError(targets[1], f"{targets[1]!r} beside {targets[0]!r}", "choose one")
        if not any(word != "down" or self.down for word in self.words):
            raise UserError("the rule has no effect", hint="such as loss: random 1%")
        self._check_key()
        self._check_timeline()
        return self

    def _check_key(self) -> None:
        memory = needs_index(self)
        if self.key == "identity" and memory is not None:
            what = f"{memory} remembers earlier packets and cannot be keyed by identity"
            raise KeyedError("key", what, "leave out the key, or key: index")

    def _check_timeline(self) -> None:
        if self.every is None:
            return
        if self.for_ is None:
            raise KeyedError("every", "'every' needs 'for', how long it lasts each time")
        if self.for_ > self.every:
            raise KeyedError("for", "the timeline overlaps itself: 'for' is longer than 'every'")


def needs_index(spec: Impairments) -> str | None:
    """The first of its effects that can only be keyed by index, as the user calls it."""
    if spec.loss is not None and spec.loss.remembers:
        return f"loss {spec.loss.model}"
    if spec.reorder is not None and spec.reorder.gap > 1:
        return "reorder with a gap"
    return None
