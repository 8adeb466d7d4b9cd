# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults as the XDP programs and the wire stage read them: lab_fault.h, lab_name.h, lab_shape.h."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
import zlib
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from softroce_lab import _native
from softroce_lab.plan.effects import (
    CERTAIN,
    Corrupt,
    Cut,
    Delay,
    Down,
    Drop,
    Duplicate,
    Fault,
    Filter,
    LossModel,
    NamedDrop,
    Queue,
    Reorder,
    Window,
)
from softroce_lab.structs import CONSTANTS, Struct, enumerators

FAULT_RULES: int = CONSTANTS["LAB_FAULT_RULES"]
_NAME_BITS: int = CONSTANTS["LAB_NAME_BITS"]
_GOLDEN: int = CONSTANTS["LAB_GOLDEN"]

_KEYS = enumerators("lab_fault_key")
_KINDS = {kind: 1 << bit for kind, bit in enumerators("lab_kind").items()}
_KINDS["other"] = CONSTANTS["LAB_KIND_BIT_OTHER"]
_KINDS["probe"] = CONSTANTS["LAB_KIND_BIT_PROBE"]
_KINDS["parity"] = CONSTANTS["LAB_KIND_BIT_PARITY"]
_KIND_TAIL: int = CONSTANTS["LAB_KIND_BIT_TAIL"]
_ALL_KINDS = sum(_KINDS.values())
_NEEDS = enumerators("lab_fault_need")
_NAMES = enumerators("lab_name_tuple")
_EFFECTS = enumerators("lab_effect")
_MODELS = enumerators("lab_fault_model")
_SLOTS = enumerators("lab_verdict_slot")
_ONES = 2**32 - 1

_WINDOW = Struct("lab_window")
_FILTER = Struct("lab_filter")
_RULE = Struct("lab_fault_rule")
_SET = Struct("lab_fault_set")
_RULE_STATE = Struct("lab_rule_state")
_STATE = Struct("lab_fault_state")
_NAME_KEY = Struct("lab_name_key")
_NAMED = Struct("lab_named")

NameKey: TypeAlias = tuple[int, int, int]  # tuple, first and second number


@functools.lru_cache(maxsize=256)
def packed_window(window: Window) -> bytes:
    return _WINDOW.pack(**dataclasses.asdict(window))


def _iters(iters: Sequence[int]) -> int:
    """Bit n-1 for the n-th transmission; all bits: every one."""
    return sum(1 << (n - 1) for n in set(iters)) if iters else CERTAIN


def _masked(**numbers: int | None) -> dict[str, int]:
    """Numbers, and the masks that make them count, but for those that are None."""
    known = {name: number for name, number in numbers.items() if number is not None}
    return known | {f"{name}_mask": _ONES for name in known}


def _kinds(wanted: Filter) -> int:
    """The kinds of packets that have all that is asked of them."""
    kinds = sum(_KINDS[kind] for kind in wanted.kinds) or _ALL_KINDS
    if not wanted.carriers:
        return kinds
    numbered = sum(_KINDS[kind] for kind in wanted.carriers)
    return kinds & numbered | _KIND_TAIL * wanted.takes_rc_tails


def _filter(wanted: Filter) -> bytes:
    return _FILTER.pack(
        iters=_iters(wanted.iters),
        kinds=_kinds(wanted),
        tail=_ONES if wanted.tail is None else wanted.tail,
        **_masked(
            opcode=wanted.opcode,
            qpn=wanted.qpn if wanted.absolute else None,
            relative_qpn=None if wanted.absolute else wanted.qpn,
            message=wanted.message,
        ),
    )


def _model(fault: Fault) -> dict[str, int] | None:
    """What distinguishes the rules of one effect from those of another; None: XDP has no rule."""
    match fault.effect:
        case LossModel() as loss:
            numbers = dict(zip(("model", "threshold", "a", "b", "c"), loss.rule, strict=False))
            return {"effects": _EFFECTS["drop"], **numbers}
        case Drop():
            return _hit("loss_random", CERTAIN, "drop")
        case Down():
            return _hit("link_down", CERTAIN, "drop") | {
                "effects": _EFFECTS["drop"] | _EFFECTS["down"]
            }
        case Cut(threshold):
            numbers = {"model": _MODELS["cut"], "threshold": threshold}
            return {"effects": _EFFECTS["cut"], **numbers}
        case Corrupt(threshold):
            return _hit("corrupt", threshold, "corrupt")
        case Duplicate(threshold):
            return _hit("duplicate", threshold, "duplicate")
        case Reorder(threshold, gap, _):
            return _hit("reorder", threshold, "reorder") | {"a": gap}
        case _:
            return None


def _hit(model: str, threshold: int, effect: str) -> dict[str, int]:
    """A rule that decides below a threshold, and whose verdict has the slot of its effect."""
    return {
        "model": _MODELS[model],
        "threshold": threshold,
        "effects": _EFFECTS[effect],
        "slot": _SLOTS[effect],
    }


def _mixed(stream: int) -> int:
    """lab_stream()."""
    return int(_native.mix64((stream + _GOLDEN) % 2**64))


def _rule(fault: Fault) -> bytes | None:
    """struct lab_fault_rule, or None if XDP has no rule for the effect."""
    model = _model(fault)
    if model is None:
        return None
    return _RULE.pack(
        stream=_mixed(fault.stream),
        window=packed_window(fault.window),
        filter=_filter(fault.filter),
        rule_id=fault.rule_id,
        key=_KEYS[fault.key],
        **model,
    )


def _name(drop: NamedDrop) -> NameKey:
    if drop.message is not None:
        return _NAMES["message"], drop.message, drop.packet or 0
    kind = _NAMES["absolute" if drop.absolute else "relative"]
    return kind, drop.qpn or 0, drop.psn or 0


def _name_filter(names: Iterable[NameKey]) -> bytes:
    bits = 0
    for kind, first, second in names:
        hashed = ((first << 32 | second) + kind) * _GOLDEN % 2**64
        bits |= 1 << (hashed >> (64 - _NAME_BITS))
    words = (bits >> at & 2**64 - 1 for at in range(0, 1 << _NAME_BITS, 64))
    return b"".join(word.to_bytes(8, sys.byteorder) for word in words)


@dataclasses.dataclass(frozen=True, slots=True)
class LinkRules:
    value: bytes  # struct lab_fault_set
    names: dict[NameKey, bytes]  # struct lab_named
    rule_ids: tuple[int, ...]  # of the rules in `value`, by position
    learns: bool  # whether switches have to know connections
    shaped: bool  # whether frames go through the wire stage

    @property
    def empty(self) -> bool:
        return not (self.rule_ids or self.names or any(self.value))


def link_rules(faults: Sequence[Fault]) -> LinkRules:
    """Lay out the faults of one directed link, which are in the order of `effects`.

    ValueError if there are more rules than a link takes.
    """
    laid = [(fault.rule_id, rule) for fault in faults if (rule := _rule(fault)) is not None]
    if len(laid) > FAULT_RULES:
        raise ValueError(f"{len(laid)} rules on a directed link, which takes {FAULT_RULES}")
    names: dict[NameKey, bytes] = {}
    for fault in faults:
        if isinstance(fault.effect, NamedDrop):
            value = _NAMED.pack(
                iters=_iters(fault.effect.iters),
                window=packed_window(fault.window),
                rule_id=fault.rule_id,
            )
            names.setdefault(_name(fault.effect), value)
    relative = any(_is_relative(fault) for fault in faults)
    tails = any(fault.filter.takes_rc_tails for fault in faults)
    needs = {
        "time": any(not fault.window.always for fault in faults),
        "relative": relative,
        "tail": tails,
        "filter": any(not fault.filter.everything for fault in faults),
        "down": bool(names) and any(isinstance(f.effect, Down) for f in faults),
    }
    jitter = next((f for f in faults if isinstance(f.effect, Delay) and f.effect.jitter_ns), None)
    tuples = bytes(sorted({kind for kind, _, _ in names}))
    value = _SET.pack(
        count=len(laid),
        needs=sum(_NEEDS[need] for need, is_there in needs.items() if is_there),
        jitter_stream=_mixed(jitter.stream) if jitter else 0,
        jitter_key=_KEYS[jitter.key] if jitter else 0,
        tuples=len(tuples),
        tuple=tuples,
        names_digest=zlib.crc32(repr(sorted(names.items())).encode()) if names else 0,
        named=_name_filter(names),
        rule=b"".join(rule for _, rule in laid),
    )
    shaped = any(fault.is_staged for fault in faults)
    return LinkRules(value, names, tuple(rule_id for rule_id, _ in laid), relative or tails, shaped)


def _is_relative(fault: Fault) -> bool:
    asked = fault.effect if isinstance(fault.effect, NamedDrop) else fault.filter
    return asked.qpn is not None and not asked.absolute


def name_key(slot: int, name: NameKey) -> bytes:
    """struct lab_name_key; `slot` is 2 * directed link + slot."""
    kind, first, second = name
    return _NAME_KEY.pack(link_slot=slot, tuple=kind, first=first, second=second)


def slot_of_name(key: bytes) -> int:
    return int(_NAME_KEY.unpack(key).link_slot)


@dataclasses.dataclass(frozen=True, slots=True)
class Hits:
    """What a rule did so far to the packets that reached it while it acted."""

    rule_id: int
    seen: int | None  # None: a named packet, whose rule sees nothing else
    hits: int
    runs: int  # of consecutive packets that it hit

    @property
    def rate(self) -> float | None:
        return self.hits / self.seen if self.seen else None

    @property
    def mean_run(self) -> float | None:
        return self.hits / self.runs if self.runs else None


def rule_hits(state: bytes, rule_ids: Sequence[int]) -> list[Hits]:
    states = _RULE_STATE.unpack_all(_STATE.unpack(state).rule)
    return [
        Hits(rule_id, rule.seen, rule.hits, rule.runs)
        for rule_id, rule in zip(rule_ids, states, strict=False)
    ]


def rule_ids(value: bytes) -> tuple[int, ...]:
    rules = _SET.unpack(value)
    return tuple(
        rule.rule_id for rule in itertools.islice(_RULE.unpack_all(rules.rule), rules.count)
    )


def named_hits(value: bytes) -> Hits:
    named = _NAMED.unpack(value)
    return Hits(named.rule_id, None, named.hits, named.hits)


def fresh_named(value: bytes) -> bytes:
    """A struct lab_named that has seen nothing yet."""
    return _NAMED.pack(**_NAMED.unpack(value)._asdict() | {"seen": 0, "hits": 0})


PARTS: int = CONSTANTS["LAB_SHAPE_PARTS"]  # delays, and queues, of one directed link

_DISTRIBUTIONS = enumerators("lab_distribution")
_DELAY = Struct("lab_delay")
_QUEUE = Struct("lab_queue")
_SHAPE = Struct("lab_shape")


@functools.lru_cache(maxsize=256)
def _laid(effect: Delay | Queue, when: Window) -> bytes:
    """struct lab_delay or lab_queue: a field of the effect is a member; a limit may be none."""
    fields = {
        field.name: getattr(effect, field.name)
        for field in dataclasses.fields(effect)
        if field.name != "kind"
    }
    values = {name: CERTAIN if value is None else value for name, value in fields.items()}
    if isinstance(effect, Queue):
        return _QUEUE.pack(**values, window=packed_window(when))
    values["distribution"] = _DISTRIBUTIONS[effect.distribution]
    return _DELAY.pack(**values, window=packed_window(when))


def shape(faults: Sequence[Fault]) -> bytes:
    """struct lab_shape of one directed link, from its faults in their order.

    Of several delays, or queues, the last whose window acts counts; so does, of several reorder
    faults, what the last one lets packets wait. ValueError if there are more parts than fit.
    """
    delays = [_laid(f.effect, f.window) for f in faults if isinstance(f.effect, Delay)]
    queues = [_laid(f.effect, f.window) for f in faults if isinstance(f.effect, Queue)]
    extras = [f.effect.extra_ns for f in faults if isinstance(f.effect, Reorder)]
    if max(len(delays), len(queues)) > PARTS:
        raise ValueError(f"{len(delays)} delays and {len(queues)} queues, at most {PARTS} fit")
    return _SHAPE.pack(
        reorder_extra_ns=extras[-1] if extras else 0,
        delays=len(delays),
        queues=len(queues),
        delay=b"".join(delays),
        queue=b"".join(queues),
    )
