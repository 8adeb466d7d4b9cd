# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults as they are written: tc-netem's words, Lumina's named packets, a target, a timeline.

docs/faults.md is the reference. What follows from several rules together, or from the topology,
is `resolve`'s and `check`'s to find.
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
    """tc-netem's `gemodel p [r [1-h [1-k]]]`."""

    positional: ClassVar = ("p", "r", "1-h", "1-k")

    p: Probability
    r: Probability | None = None  # 1 - p
    loss_bad: Annotated[Probability | None, Field(alias="1-h")] = None  # 100 %
    loss_good: Annotated[Probability | None, Field(alias="1-k")] = None  # 0 %

    @property
    def effect(self) -> Gemodel:
        """With what netem takes for the parameters that are left out."""
        r = 1 - self.p if self.r is None else self.r
        loss_bad = Fraction(1) if self.loss_bad is None else self.loss_bad
        loss_good = Fraction(0) if self.loss_good is None else self.loss_good
        return Gemodel(threshold(self.p), threshold(r), threshold(loss_bad), threshold(loss_good))


class BurstSpec(Compact):
    """Bursts of `length` packets that take `rate` of all packets."""

    positional: ClassVar = ("rate", "length")

    rate: Probability
    length: Annotated[int, number("length", 1, QPN_MAX), NUMBER_SCHEMA]

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
    """Of every `every` packets, `length` ones from `offset` on."""

    positional: ClassVar = ("every", "length", "offset")

    every: Annotated[int, number("every", 1, NUMBER_MAX), NUMBER_SCHEMA]
    length: Annotated[int, number("length", 1, NUMBER_MAX), NUMBER_SCHEMA] = 1
    offset: Annotated[int, number("offset", 0, NUMBER_MAX), NUMBER_SCHEMA] = 0

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
    """Lost packets, by one model."""

    not_yet: ClassVar = {"state": "gemodel has states, burst and periodic have runs"}
    elsewhere: ClassVar = {"ecn": "ecn marks at a queue: rate: 200Mbit ecn 30"}

    random: Probability | None = None
    gemodel: GemodelSpec | None = None
    burst: BurstSpec | None = None
    periodic: PeriodicSpec | None = None
    blackout: bool = False

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


class CorruptSpec(Compact):
    """Flipped bits."""

    positional: ClassVar = ("percent",)

    percent: Probability


class DuplicateSpec(Compact):
    """Second copies."""

    positional: ClassVar = ("percent",)

    percent: Probability


class ReorderSpec(Compact):
    """Packets that leave out of turn."""

    positional: ClassVar = ("percent",)

    percent: Probability
    gap: Annotated[int, number("gap", 0, NUMBER_MAX), NUMBER_SCHEMA] = 0
    by: DelayTime | None = None


class DelaySpec(Compact):
    """Propagation."""

    positional: ClassVar = ("delay", "jitter")

    delay: DelayTime
    jitter: DelayTime | None = None
    distribution: Distribution | None = None
    reorder: Literal["allow", "preserve"] = "preserve"


class QueueSpec(Compact):
    """A transmitter and the queue before it."""

    positional: ClassVar = ("rate",)
    flags: ClassVar = ("trim",)

    rate: Rate
    limit: DepthField | None = None
    ecn: DepthField | None = None
    trim: bool = False


BESIDE = {"delay": ("jitter", "distribution"), "rate": ("limit", "ecn", "trim")}
_LINES = {"delay": "delay: 10ms", "rate": "rate: 200Mbit"}
EFFECTS = ("down", "drop", "loss", "corrupt", "duplicate", "reorder", "rate", "delay")
_UNFILTERED = ("down", "rate", "delay")


class Impairments(Filled):
    """What can go wrong on a link."""

    not_yet: ClassVar = {"slot": "delay with jitter, and rate, shape traffic too"}
    elsewhere: ClassVar = {"gap": "gap belongs to reorder: reorder: 25% gap 5"}

    down: bool | None = None
    drop: (
        Annotated[
            list[DropEvent],
            BeforeValidator(_listed, json_schema_input_type=DropEvent | list[DropEvent]),
            Field(min_length=1),
        ]
        | None
    ) = None
    loss: Loss | None = None
    corrupt: CorruptSpec | None = None
    duplicate: DuplicateSpec | None = None
    reorder: ReorderSpec | None = None
    rate: QueueSpec | None = None
    limit: DepthField | None = None
    ecn: DepthField | None = None
    trim: bool | None = None
    delay: DelaySpec | None = None
    jitter: DelayTime | None = None
    distribution: Distribution | None = None
    only: Kinds | None = None

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
    """Impairments of a link: of both directions, and of one."""

    elsewhere: ClassVar = {
        **Impairments.elsewhere,
        **dict.fromkeys(("at", "for", "every", "key"), "it belongs to a rule under faults"),
    }

    forward: Impairments | None = None  # from the first endpoint to the second
    backward: Impairments | None = None


# --- Rules -----------------------------------------------------------------------------------


def _check_rule_name(name: str) -> str:
    return check_name(name, "rule name", MAX_RULE_NAME)


_TARGETS = ("links", "nodes", "ports", "nics")


class FaultRule(Impairments):
    """Impairments of the links that a pattern chooses, at their time; or a sentence about a NIC."""

    elsewhere: ClassVar = {
        **Impairments.elsewhere,
        "on": "links, nodes or ports say where: links: 'leaf*<->spine*'",
        **dict.fromkeys(sentence.TARGETS, f"in a sentence: {sentence.EXAMPLE}"),
    }

    name: Annotated[str, AfterValidator(_check_rule_name), name_schema(MAX_RULE_NAME)]
    links: Links | None = None
    nodes: Nodes | None = None
    ports: Ports | None = None
    nics: Ports | None = None  # ports of hosts
    key: FaultKey | None = None  # None: what each effect needs
    at: Time | None = None
    for_: Annotated[Length | None, Field(alias="for")] = None
    every: Length | None = None

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
