# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults as they are written: tc-netem's words, Lumina's named packets, a target, a timeline.

docs/faults.md is the reference. What follows from several rules together, or from the topology,
is `resolve`'s and `check`'s to find.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from softroce_lab.errors import UserError
from softroce_lab.faults.effects import Distribution, FaultKey, PacketKind, Window
from softroce_lab.faults.opcodes import OPCODES, UD_SEND_ONLY
from softroce_lab.faults.words import (
    NUMBER_SCHEMA,
    NUMBERS_SCHEMA,
    Compact,
    DelayTime,
    DepthField,
    Filled,
    Length,
    Probability,
    Rate,
    Time,
    number,
    numbers,
    parts_of,
)
from softroce_lab.topology.validation import KeyedError, did_you_mean

MAX_RULE_NAME = 32
MAX_ITER = 64
QPN_MAX = PSN_MAX = 2**24 - 1
NUMBER_MAX = 2**32 - 1

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


# --- Which packets ---------------------------------------------------------------------------

_KINDS: tuple[PacketKind, ...] = ("data", "control", "report", "other")


def _parse_kinds(value: object) -> tuple[PacketKind, ...]:
    parts = [part.strip() if isinstance(part, str) else part for part in parts_of(value)]
    for part in parts:
        if part not in _KINDS:
            raise UserError(f"unknown packets {part!r}", hint=did_you_mean(str(part), _KINDS))
    if not parts:
        raise UserError("an empty list can match nothing", hint=f"known: {', '.join(_KINDS)}")
    return tuple(kind for kind in _KINDS if kind in parts)


_KIND_SCHEMA: dict[str, Any] = {"enum": list(_KINDS)}
Kinds = Annotated[
    tuple[PacketKind, ...],
    PlainValidator(_parse_kinds),
    WithJsonSchema({"anyOf": [_KIND_SCHEMA, {"type": "array", "items": _KIND_SCHEMA}]}),
]


def _parse_opcode(value: object) -> int:
    text = str(value).strip()
    if isinstance(value, int) and not isinstance(value, bool):
        opcode = value
    elif re.fullmatch(r"0[xX][0-9a-fA-F]{1,8}|\d{1,8}", text, re.ASCII):
        opcode = int(text, 0 if text[1:2] in {"x", "X"} else 10)
    elif text.upper() in OPCODES:
        opcode = OPCODES[text.upper()]
    else:
        raise UserError(f"unknown opcode {text!r}", hint=did_you_mean(text.upper(), OPCODES))
    if not 0 <= opcode <= 0xFF:
        raise UserError(f"opcode {text} can match nothing", hint="0x00 to 0xff, such as 0x64")
    return opcode


Opcode = Annotated[
    int,
    PlainValidator(_parse_opcode),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 255}, {"enum": list(OPCODES)}]}
    ),
]


class DropEvent(Compact):
    """Packets to drop: single ones by name, or all that a filter lets through."""

    flags: ClassVar = ("absolute",)

    message: Annotated[int, number("message", 0, NUMBER_MAX), NUMBER_SCHEMA] | None = None
    packet: Annotated[tuple[int, ...], numbers("packet", 0, NUMBER_MAX), NUMBERS_SCHEMA] | None = (
        None
    )
    qpn: Annotated[int, number("qpn", 0, QPN_MAX), NUMBER_SCHEMA] | None = None
    psn: Annotated[tuple[int, ...], numbers("psn", 0, PSN_MAX), NUMBERS_SCHEMA] | None = None
    absolute: bool = False
    iter: Annotated[tuple[int, ...], numbers("iter", 1, MAX_ITER), NUMBERS_SCHEMA] | None = None
    opcode: Opcode | None = None
    only: Kinds | None = None
    tail: Annotated[int, number("tail", 1, NUMBER_MAX), NUMBER_SCHEMA] | None = None

    @property
    def named(self) -> bool:
        """Whether it names single packets."""
        return self.packet is not None or self.psn is not None

    @model_validator(mode="after")
    def _possible(self) -> DropEvent:
        if not (self.model_fields_set - {"absolute", "iter"}):
            raise UserError(
                "drop does not say which packets", hint="such as tail: 1; loss: blackout drops all"
            )
        self._check_company()
        self._check_relative()
        self._check_carriers()
        return self

    def _check_company(self) -> None:
        """Which keys go together."""
        if self.packet is not None and self.message is None:
            raise KeyedError("packet", "'packet' needs the 'message' that it is of")
        if self.psn is not None and self.qpn is None:
            raise KeyedError("psn", "'psn' needs the 'qpn' that it is of")
        if self.absolute and self.qpn is None:
            raise KeyedError("absolute", "'absolute' needs a 'qpn'")
        name = {"message", "packet"} if self.packet is not None else {"qpn", "psn", "absolute"}
        extra = [key for key in self.keys() if key in self.model_fields_set - name - {"iter"}]
        if self.named and extra:
            own = "message and packet" if self.packet is not None else "qpn and psn"
            raise KeyedError(extra[0], f"{extra[0]!r} does not go with {own}, which name a packet")

    def _check_relative(self) -> None:
        """Relative numbers count from 1."""
        if self.absolute:
            return
        hint = "relative numbers count from 1; absolute: true takes those on the wire"
        if self.qpn == 0:
            raise KeyedError("qpn", "qpn 0 can match nothing", hint)
        if self.psn is not None and self.psn[0] == 0:
            raise KeyedError("psn", "psn 0 can match nothing", hint)

    def _check_carriers(self) -> None:
        """Striped messages alone have messages, tails and attempts; all packets of them are UD."""
        if self.named:
            return
        striped = [key for key in ("message", "tail", "iter") if key in self.model_fields_set]
        if striped and self.only is not None and "data" not in self.only:
            what = f"{striped[0]!r} can match nothing: only {', '.join(self.only)} packets count"
            raise KeyedError(striped[0], what, "striped messages travel in data packets")
        ours = striped or (self.only is not None and "other" not in self.only)
        if ours and self.opcode not in {None, UD_SEND_ONLY}:
            beside = striped[0] if striped else "only"
            what = f"'opcode' can match nothing beside {beside!r}"
            raise KeyedError("opcode", what, "the lab's own packets are all UD_SEND_ONLY")


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


class BurstSpec(Compact):
    """Bursts of `length` packets that take `rate` of all packets."""

    positional: ClassVar = ("rate", "length")

    rate: Probability
    length: Annotated[int, number("length", 1, QPN_MAX), NUMBER_SCHEMA]


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


_LOSS_MODELS = ("random", "gemodel", "burst", "periodic", "blackout")


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
        self._check_queue()
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

    def _check_queue(self) -> None:
        queue = self.whole_rate
        if queue is None or queue.ecn is None or queue.limit is None:
            return
        for ecn, limit in zip(queue.ecn, queue.limit, strict=True):
            if ecn is not None and limit is not None and ecn > limit:
                key = "rate" if self.ecn is None else "ecn"
                what = f"ecn {ecn} can mark nothing: the queue is full at {limit}"
                raise KeyedError(key, what, "choose a limit above ecn")

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


class LinkPattern(NamedTuple):
    """Links chosen by the names of their nodes: `left->right` or `left<->right`.

    Either side is a glob in fnmatch's notation, of nodes or, with a colon, of ports.
    """

    left: str
    right: str
    both: bool  # <->

    def __str__(self) -> str:
        return f"{self.left}{'<->' if self.both else '->'}{self.right}"


_NODES = r"[a-z0-9*?\[\]!-]*[a-z0-9*?\]]"
_PORTS = r"[A-Za-z0-9*?\[\]!._-]*[A-Za-z0-9*?\]._]"
_SIDE = rf"{_NODES}(?::{_PORTS})?"
_PATTERN = re.compile(rf"({_SIDE})\s*(<->|->)\s*({_SIDE})", re.ASCII)


def _patterns(value: object) -> list[object]:
    patterns = value if isinstance(value, list) else [value]
    if not patterns:
        raise UserError("an empty list can match nothing")
    return patterns


def parse_link_pattern(value: object) -> LinkPattern:
    """Read `a->b` or `a<->b`; UserError."""
    match = _PATTERN.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise UserError(
            f"{value!r} is not a pattern of links",
            hint="such as 'leaf*<->spine*' for both directions, 'leaf1->spine*' for one",
        )
    return LinkPattern(match[1], match[3], match[2] == "<->")


def parse_end_pattern(value: str) -> str:
    """Check `node` or `node:port`; UserError."""
    if not re.fullmatch(_SIDE, value, re.ASCII):
        what = f"{value!r} is not a pattern of links, nodes or ports"
        raise UserError(what, hint="such as 'leaf1<->spine*', spine1 or h1:eth2")
    return value


def _parse_links(value: object) -> tuple[LinkPattern, ...]:
    return tuple(map(parse_link_pattern, _patterns(value)))


def _globs(form: str, what: str, example: str) -> PlainValidator:
    def parse(value: object) -> tuple[str, ...]:
        for pattern in (patterns := _patterns(value)):
            if not isinstance(pattern, str) or not re.fullmatch(form, pattern, re.ASCII):
                raise UserError(
                    f"{pattern!r} is not a pattern of {what}", hint=f"such as {example}"
                )
        return tuple(str(pattern) for pattern in patterns)

    return PlainValidator(parse)


def _target_schema(form: str) -> WithJsonSchema:
    one = {"type": "string", "pattern": form}
    return WithJsonSchema({"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]})


Links = Annotated[
    tuple[LinkPattern, ...], PlainValidator(_parse_links), _target_schema("^[^<>]+<?->[^<>]+$")
]
Nodes = Annotated[
    tuple[str, ...], _globs(_NODES, "nodes", "spine1 or 'leaf*'"), _target_schema("^[^:<>]+$")
]
Ports = Annotated[
    tuple[str, ...],
    _globs(f"{_NODES}:{_PORTS}", "ports", "'h1:eth2'"),
    _target_schema("^[^:<>]+:[^:<>]+$"),
]


def _check_rule_name(name: str) -> str:
    return check_name(name, "rule name", MAX_RULE_NAME)


_TARGETS = ("links", "nodes", "ports")


class FaultRule(Impairments):
    """Impairments of the links that a pattern chooses, at their time."""

    name: Annotated[str, AfterValidator(_check_rule_name), name_schema(MAX_RULE_NAME)]
    links: Links | None = None
    nodes: Nodes | None = None
    ports: Ports | None = None
    key: FaultKey | None = None  # None: what each effect needs
    at: Time | None = None
    for_: Annotated[Length | None, Field(alias="for")] = None
    every: Length | None = None

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
    if spec.loss is not None and spec.loss.model in {"gemodel", "burst", "periodic"}:
        return f"loss {spec.loss.model}"
    if spec.reorder is not None and spec.reorder.gap > 1:
        return "reorder with a gap"
    return None
