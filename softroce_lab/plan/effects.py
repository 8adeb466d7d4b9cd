# SPDX-License-Identifier: GPL-2.0-or-later
"""What can happen to packets on a directed link, resolved: values, no units of the user's left.

Several effects meet a packet in this order, whatever order they were written in:

    Down, NamedDrop, Drop, the models of loss, Cut, Corrupt, Duplicate, Reorder     decided by XDP
    Queue (limit, trim, ecn, rate), then Delay with its jitter                      the wire stage

A packet that one effect takes never reaches the next. One that is cut goes on to the wire stage.
Probabilities are 64-bit thresholds: the event happens when a 64-bit hash is below it, and always
with `CERTAIN`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import ClassVar, Literal, NamedTuple, TypeAlias

FaultKey = Literal["identity", "index"]
PacketKind = Literal["data", "parity", "control", "probe", "report", "other"]
"""`probe`: of a path, which is `control`, too; `other`: without a header of the lab's."""

Distribution = Literal["uniform", "normal", "pareto"]
Word = Literal["down", "drop", "loss", "cut", "corrupt", "duplicate", "reorder", "rate", "delay"]

CERTAIN = 2**64 - 1
LINK_RULE = "link"
"""Begins the rule names of what a topology gives its links; no written rule has a colon."""


def stream_key(seed: int, name: str, *parts: str | int) -> int:
    """Hash a canonical tuple to 64 bits: BLAKE2b of it as compact JSON, big-endian."""
    canonical = json.dumps([seed, name, *parts], separators=(",", ":")).encode()
    return int.from_bytes(hashlib.blake2b(canonical, digest_size=8).digest(), "big")


def probability(threshold: int) -> float:
    return 1.0 if threshold == CERTAIN else threshold / 2**64


def percent(threshold: int) -> str:
    return f"{100 * probability(threshold):.6g}%"


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """When a fault acts, in nanoseconds since the lab's timeline began."""

    begin_ns: int = 0
    length_ns: int = 0  # 0: for ever
    period_ns: int = 0  # again after each of these; 0: once

    @property
    def always(self) -> bool:
        return self == Window()

    def acts(self, now_ns: int) -> bool:
        """Whether `now_ns` lies in it; xdp/lab_fault.h computes the same."""
        since = now_ns - self.begin_ns
        if self.always:
            return True
        if since < 0:
            return False
        if self.period_ns:
            since %= self.period_ns
        return not self.length_ns or since < self.length_ns

    def next_change_ns(self, now_ns: int) -> int | None:
        """The next moment after `now_ns` at which `acts` changes its answer; None: never."""
        if self.always:
            return None
        if now_ns < self.begin_ns:
            return self.begin_ns
        if not self.length_ns:
            return None
        round_, since = divmod(now_ns - self.begin_ns, self.period_ns or 2**63)
        start = self.begin_ns + round_ * self.period_ns
        if since < self.length_ns:
            return start + self.length_ns
        return start + self.period_ns if self.period_ns else None


ALWAYS = Window()


RC_TAILS = frozenset({2, 3, 4, 5, 8, 9, 10, 11, 22, 23})
"""LAB_RC_TAILS: opcodes of RC that end a SEND or a WRITE (IBA 9.2.1)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Filter:
    """Which packets a fault looks at; all that is None or empty matches every packet."""

    kinds: tuple[PacketKind, ...] = ()
    opcode: int | None = None  # of the BTH (IBA 9.2.1)
    qpn: int | None = None  # destination QP: the n-th that its sender spoke to, from 1
    absolute: bool = False  # `qpn` is the number on the wire instead
    message: int | None = None  # the workload's number of a striped message
    tail: int | None = None  # the last so many packets of data of each message
    iters: tuple[int, ...] = ()  # transmissions from 1 to 64; striped messages alone carry it

    @property
    def everything(self) -> bool:
        return self == Filter()

    @property
    def carriers(self) -> tuple[PacketKind, ...]:
        """Kinds of packets with the numbers asked for; (): no message, place or attempt is.

        A probe has a transmission, parity a message, too. A message ends with data.
        """
        if self.tail is not None:
            return ("data",)
        if self.message is not None:
            return ("data", "parity")
        return ("data", "parity", "probe") if self.iters else ()

    @property
    def takes_rc_tails(self) -> bool:
        """Whether it matches the last packet of an RC message on its first transmission.

        Opcode and PSN show that packet, and neither the one before it nor the message's number.
        """
        if self.tail != 1 or self.message is not None:
            return False
        if self.opcode is not None and self.opcode not in RC_TAILS:
            return False
        return (not self.kinds or "other" in self.kinds) and (not self.iters or 1 in self.iters)


# --- Lost packets. `kind` distinguishes them in JSON ------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Down:
    """The link is down: nothing passes, and routes avoid it."""

    kind: Literal["down"] = "down"


@dataclasses.dataclass(frozen=True, slots=True)
class NamedDrop:
    """One packet, by its name, on its n-th transmissions: Lumina's events (SIGCOMM'23).

    Either `message` and `packet` (from 0, as the workload and the engine number them), or `qpn`
    and `psn`: relative numbers from 1, in the order in which the sender used them, or, if
    `absolute`, those on the wire.
    """

    message: int | None
    packet: int | None
    qpn: int | None
    psn: int | None
    absolute: bool
    iters: tuple[int, ...]  # from 1 to 64; (): every transmission
    kind: Literal["named-drop"] = "named-drop"


@dataclasses.dataclass(frozen=True, slots=True)
class Drop:
    """Every packet that the filter lets through."""

    kind: Literal["drop"] = "drop"


# --- Models of loss --------------------------------------------------------------------------
#
# A new one is a class here, its notation in faults/model.py, and its decision in xdp/lab_fault.h.


class RuleNumbers(NamedTuple):
    """What a model's rule is for XDP: struct lab_fault_rule."""

    model: int  # enum lab_fault_model
    threshold: int
    a: int = 0
    b: int = 0
    c: int = 0


class LossModel:
    """Which packets are lost."""

    __slots__ = ()

    kind: str  # its name in faults, and in JSON
    remembers: ClassVar[bool] = False  # depends on the packets before: keyed by `index` alone
    netem: ClassVar[str | None] = None  # what tc-netem does otherwise

    @property
    def rate(self) -> float:
        """The share of packets that are lost in the long run."""
        raise NotImplementedError

    @property
    def mean_run(self) -> float | None:
        """The mean number of consecutive packets lost; None: nothing ends a run, or none is."""
        raise NotImplementedError

    @property
    def rule(self) -> RuleNumbers:
        """Its rule for XDP."""
        raise NotImplementedError

    @property
    def words(self) -> str:
        """As it is written in a fault, behind `loss`."""
        return self.kind

    @property
    def short(self) -> str:
        """A few characters for a picture."""
        return self.kind

    @property
    def netem_words(self) -> str | None:
        """Arguments of tc-netem that come nearest; None: netem has nothing like it."""
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class RandomLoss(LossModel):
    """Each packet on its own: tc-netem's `loss random`."""

    threshold: int
    kind: Literal["random"] = "random"

    @property
    def rate(self) -> float:
        return probability(self.threshold)

    @property
    def mean_run(self) -> float | None:
        return 1 / (1 - self.rate) if 0 < self.rate < 1 else None

    @property
    def rule(self) -> RuleNumbers:
        return RuleNumbers(0, self.threshold)

    @property
    def words(self) -> str:
        return f"random {percent(self.threshold)}"

    @property
    def short(self) -> str:
        return f"{100 * self.rate:.3g} % loss"

    @property
    def netem_words(self) -> str | None:
        return f"loss {self.words}"


@dataclasses.dataclass(frozen=True, slots=True)
class Gemodel(LossModel):
    """Gilbert-Elliott's two states: tc-netem's `loss gemodel p r 1-h 1-k`, thresholds all.

    The state that a packet finds decides its fate, then the chain moves, as in netem's
    loss_gilb_ell().
    """

    p: int  # good to bad
    r: int  # bad to good
    loss_bad: int  # 1-h
    loss_good: int  # 1-k
    kind: Literal["gemodel"] = "gemodel"

    remembers: ClassVar = True

    @property
    def rate(self) -> float:
        return self._equilibrium()[0]

    @property
    def mean_run(self) -> float | None:
        share, both = self._equilibrium()
        return share / (share - both) if share > both else None

    def _equilibrium(self) -> tuple[float, float]:
        """P(a packet is lost), P(two in a row are).

        A packet's fate depends on the state that it finds; then the chain moves (netem's order).
        """
        p, r = probability(self.p), probability(self.r)
        loss = {False: probability(self.loss_good), True: probability(self.loss_bad)}
        bad = p / (p + r) if p + r else 0.0  # the chain begins in the good state
        there = {False: 1 - bad, True: bad}
        move = {(False, True): p, (False, False): 1 - p, (True, False): r, (True, True): 1 - r}
        one = sum(there[state] * loss[state] for state in there)
        two = sum(there[s] * loss[s] * move[s, t] * loss[t] for s in there for t in there)
        return one, two

    @property
    def rule(self) -> RuleNumbers:
        return RuleNumbers(1, self.p, self.r, self.loss_bad, self.loss_good)

    @property
    def words(self) -> str:
        values = [self.p, self.r]
        if self.loss_bad != CERTAIN or self.loss_good:
            values.append(self.loss_bad)
        if self.loss_good:
            values.append(self.loss_good)
        return f"gemodel {' '.join(map(percent, values))}"

    @property
    def netem_words(self) -> str | None:
        values = (self.p, self.r, self.loss_bad, self.loss_good)
        return f"loss gemodel {' '.join(map(percent, values))}"


@dataclasses.dataclass(frozen=True, slots=True)
class Burst(LossModel):
    """Runs of exactly `length` lost packets, each begun with probability `begin`."""

    begin: int
    length: int
    kind: Literal["burst"] = "burst"

    remembers: ClassVar = True
    netem: ClassVar = "netem's bursts are of random length, of that mean"

    @property
    def rate(self) -> float:
        q = probability(self.begin)
        return q * self.length / (1 + q * (self.length - 1))

    @property
    def mean_run(self) -> float | None:
        q = probability(self.begin)
        return self.length / (1 - q) if 0 < q < 1 else None

    @property
    def rule(self) -> RuleNumbers:
        return RuleNumbers(2, self.begin, self.length)

    @property
    def words(self) -> str:
        q = probability(self.begin)
        share = self.length * q / (self.length * q + 1 - q)  # what was written
        return f"burst {100 * share:.6g}% {self.length}"

    @property
    def short(self) -> str:
        return f"{100 * probability(self.begin):.3g} % bursts"

    @property
    def netem_words(self) -> str | None:
        return f"loss gemodel {percent(self.begin)} {100 / self.length:.6g}%"


@dataclasses.dataclass(frozen=True, slots=True)
class Periodic(LossModel):
    """Of every `every` packets the `length` ones from `offset` on (counted from 0)."""

    every: int
    length: int
    offset: int
    kind: Literal["periodic"] = "periodic"

    remembers: ClassVar = True
    netem: ClassVar = "netem has none; iptables -m statistic --mode nth comes near"

    @property
    def rate(self) -> float:
        return self.length / self.every

    @property
    def mean_run(self) -> float | None:
        return float(self.length) if self.length < self.every else None

    @property
    def rule(self) -> RuleNumbers:
        return RuleNumbers(3, 0, self.every, self.length, self.offset)

    @property
    def words(self) -> str:
        offset = f" {self.offset}" if self.offset else ""
        return f"periodic {self.every} {self.length}{offset}"


@dataclasses.dataclass(frozen=True, slots=True)
class Blackout(LossModel):
    """Everything, while the link stays up and routes do not move."""

    kind: Literal["blackout"] = "blackout"

    @property
    def rate(self) -> float:
        return 1.0

    @property
    def mean_run(self) -> float | None:
        return None

    @property
    def rule(self) -> RuleNumbers:
        return RuleNumbers(0, CERTAIN)

    @property
    def netem_words(self) -> str | None:
        return "loss random 100%"


# --- What else happens to single packets -----------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
    """The payload cut off, as a queue trims. A packet without a payload to cut is dropped.

    A packet that was trimmed before passes.
    """

    threshold: int
    kind: Literal["cut"] = "cut"


@dataclasses.dataclass(frozen=True, slots=True)
class Corrupt:
    """One bit flipped, where the ICRC of a RoCE packet, else a checksum of layer 4, covers it."""

    threshold: int
    kind: Literal["corrupt"] = "corrupt"


@dataclasses.dataclass(frozen=True, slots=True)
class Duplicate:
    """A second copy right behind the packet."""

    threshold: int
    kind: Literal["duplicate"] = "duplicate"


@dataclasses.dataclass(frozen=True, slots=True)
class Reorder:
    """Packets that leave out of turn: tc-netem's `reorder PERCENT gap N`, or held back longer.

    With `extra_ns` 0 a chosen packet skips the link's delay; else it is delayed by so much more
    while others pass it. With a gap of N the first N-1 packets, and those after a chosen one, are
    none.
    """

    threshold: int
    gap: int  # 0: none
    extra_ns: int
    kind: Literal["reorder"] = "reorder"


# --- The wire --------------------------------------------------------------------------------


TRIM_SHARE = 500_000
"""The share that UET 1.0 gives to trimmed packets, at most: 50 %."""


@dataclasses.dataclass(frozen=True, slots=True)
class Queue:
    """A transmitter of `rate_bps` behind a queue; 0 or None: none."""

    rate_bps: int  # of whole frames, Ethernet header included, without preamble and FCS
    limit_bytes: int | None  # waiting frames beyond this are dropped, or trimmed
    limit_packets: int | None
    ecn_bytes: int | None  # ECN-capable frames that find so much waiting are marked CE
    ecn_packets: int | None
    trim: bool
    trim_bytes: int | None = None  # from so much waiting on it trims; both None: when it is full
    trim_packets: int | None = None
    trim_share: int = TRIM_SHARE  # of the rate, parts per million; waiting frames have the rest
    kind: Literal["queue"] = "queue"


@dataclasses.dataclass(frozen=True, slots=True)
class Delay:
    """Propagation: `delay_ns` plus or minus `jitter_ns`, never less than nothing."""

    delay_ns: int
    jitter_ns: int
    distribution: Distribution
    preserve: bool  # jitter never lets a packet overtake another
    kind: Literal["delay"] = "delay"


# Each by itself, as plans are read by `kind`.
Loss: TypeAlias = RandomLoss | Gemodel | Burst | Periodic | Blackout
Effect: TypeAlias = (
    Down | NamedDrop | Drop | Loss | Cut | Corrupt | Duplicate | Reorder | Queue | Delay
)

_WORDS: dict[str, Word] = {
    "down": "down",
    "named-drop": "drop",
    "drop": "drop",
    "loss": "loss",
    "cut": "cut",
    "corrupt": "corrupt",
    "duplicate": "duplicate",
    "reorder": "reorder",
    "queue": "rate",
    "delay": "delay",
}
_TURNS = tuple(_WORDS)


def word_of(effect: Effect) -> Word:
    return _WORDS[_kind(effect)]


def turn(effect: Effect) -> int:
    """Its place in the order in which effects meet a packet; equal for all models of loss."""
    return _TURNS.index(_kind(effect))


def _kind(effect: Effect) -> str:
    return "loss" if isinstance(effect, LossModel) else effect.kind


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """An effect on one directed link, resolved.

    `stream` is the 64-bit key of its hashes, derived from the seed and stable names only, so that
    adding a link changes no other stream: the first 8 bytes of BLAKE2b(digest_size=8), big-endian,
    over compact JSON (no spaces, UTF-8) of

        [seed, rule, tier, "up" | "down" | "across"]        key `identity`: never the link
        [seed, rule, "sender:port", "receiver:port"]        key `index`

    where tier is the lesser of the hop's two ends, up leads to the greater, and rule is "RULE" for
    `loss` and "RULE:WORD" for any other word, so that one rule's effects hit different packets.
    """

    rule: str
    rule_id: int  # drop records carry it; unique in a plan, and kept when others come and go
    directed_link: int
    key: FaultKey
    stream: int
    effect: Effect
    filter: Filter = Filter()
    window: Window = Window()

    @property
    def word(self) -> Word:
        """What a user calls it; `lab fault set` replaces all of one word on a link."""
        return word_of(self.effect)

    @property
    def is_of_link(self) -> bool:
        """Whether it is the rate, the queue or the delay that the topology gives the link."""
        return isinstance(self.effect, Delay | Queue) and self.rule.startswith(f"{LINK_RULE}:")

    @property
    def shapes(self) -> bool:
        return isinstance(self.effect, Duplicate | Reorder | Queue | Delay)

    @property
    def is_staged(self) -> bool:
        """Whether the wire stage carries it out."""
        return self.shapes or isinstance(self.effect, Cut)
