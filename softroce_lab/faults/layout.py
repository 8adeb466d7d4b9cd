# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults as the XDP programs read them: the layouts of xdp/lab_fault.h and xdp/lab_name.h."""

from __future__ import annotations

import dataclasses
import struct
import sys
import zlib
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from softroce_lab.plan.effects import (
    CERTAIN,
    Corrupt,
    Delay,
    Down,
    Drop,
    Duplicate,
    Fault,
    Filter,
    LossModel,
    NamedDrop,
    Reorder,
    Window,
)

FAULT_RULES = 8  # LAB_FAULT_RULES
NAME_TUPLES = 4  # LAB_NAME_TUPLES
_NAME_BITS = 10  # LAB_NAME_BITS
_GOLDEN = 0x9E3779B97F4A7C15  # LAB_GOLDEN

_KEYS = {"identity": 0, "index": 1}  # enum lab_fault_key
_KINDS = {"data": 1, "control": 2, "report": 4, "other": 8}  # 1 << enum lab_kind
_KIND_TAIL = 16  # LAB_KIND_BIT_TAIL
_ALL_KINDS = 15
_NEED_TIME, _NEED_RELATIVE, _NEED_FILTER, _NEED_DOWN, _NEED_TAIL = 1, 2, 4, 8, 16  # lab_fault_need
_NAME_MESSAGE, _NAME_RELATIVE, _NAME_ABSOLUTE = 1, 2, 3  # enum lab_name_tuple
_DROP, _CORRUPT, _DUPLICATE, _REORDER, _DOWN = 1, 2, 4, 8, 16  # enum lab_effect
_ONES = 2**32 - 1

_WINDOW = struct.Struct("=QQQ")
_FILTER = struct.Struct("=QII8I")
_RULE = struct.Struct(f"=QQQQQ{_WINDOW.size}s{_FILTER.size}sIIHHI")
_SET = struct.Struct(f"=IIQII{NAME_TUPLES}sI{(1 << _NAME_BITS) // 8}s{FAULT_RULES * _RULE.size}s")
_RULE_STATE = struct.Struct("=QQQQQ")
_STATE_HEAD = struct.Struct("=QQ")
_NAME_KEY = struct.Struct("=IIII")
_NAMED = struct.Struct(f"=QQQ{_WINDOW.size}sII")

NameKey: TypeAlias = tuple[int, int, int]  # tuple, first and second number


def window(window: Window) -> bytes:
    """struct lab_window."""
    return _WINDOW.pack(window.begin_ns, window.length_ns, window.period_ns)


def _iters(iters: Sequence[int]) -> int:
    """Bit n-1 for the n-th transmission; all bits: every one."""
    return sum(1 << (n - 1) for n in set(iters)) if iters else CERTAIN


def _masked(number: int | None) -> tuple[int, int]:
    """A number and the mask that makes it count, or neither."""
    return (0, 0) if number is None else (number, _ONES)


def _kinds(wanted: Filter) -> int:
    """The kinds of packets that have all that is asked of them."""
    kinds = sum(_KINDS[kind] for kind in wanted.kinds) or _ALL_KINDS
    ours = wanted.message is not None or wanted.tail is not None or wanted.iters
    return kinds & _KINDS["data"] | _KIND_TAIL * wanted.takes_rc_tails if ours else kinds


def _filter(wanted: Filter) -> bytes:
    """struct lab_filter."""
    return _FILTER.pack(
        _iters(wanted.iters),
        _kinds(wanted),
        _ONES if wanted.tail is None else wanted.tail,
        *_masked(wanted.opcode),
        *_masked(wanted.qpn if wanted.absolute else None),
        *_masked(None if wanted.absolute else wanted.qpn),
        *_masked(wanted.message),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Model:
    """What distinguishes the rules of one effect from those of another."""

    number: int  # enum lab_fault_model
    effects: int  # bits of enum lab_effect
    threshold: int
    a: int = 0
    b: int = 0
    c: int = 0
    slot: int = 0  # enum lab_verdict_slot


def _model(fault: Fault) -> _Model | None:
    """None if XDP has no rule for the effect."""
    match fault.effect:
        case LossModel() as loss:
            number, *values = loss.rule
            return _Model(number, _DROP, *values)
        case Drop():
            return _Model(0, _DROP, CERTAIN)
        case Down():
            return _Model(4, _DROP | _DOWN, CERTAIN)
        case Corrupt(threshold):
            return _Model(5, _CORRUPT, threshold, slot=1)
        case Duplicate(threshold):
            return _Model(6, _DUPLICATE, threshold, slot=2)
        case Reorder(threshold, gap, _):
            return _Model(7, _REORDER, threshold, gap, slot=3)
        case _:
            return None


def _mixed(stream: int) -> int:
    """lab_stream(): SplitMix64's finaliser, of the number after `stream`."""
    word = (stream + _GOLDEN) % 2**64
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
    return word ^ word >> 31


def _rule(fault: Fault) -> bytes | None:
    """struct lab_fault_rule, or None if XDP has no rule for the effect."""
    model = _model(fault)
    if model is None:
        return None
    return _RULE.pack(
        *(_mixed(fault.stream), model.threshold, model.a, model.b, model.c),
        window(fault.window),
        _filter(fault.filter),
        *(fault.rule_id, model.effects, model.slot, _KEYS[fault.key], model.number),
    )


def _name(drop: NamedDrop) -> NameKey:
    if drop.message is not None:
        return _NAME_MESSAGE, drop.message, drop.packet or 0
    kind = _NAME_ABSOLUTE if drop.absolute else _NAME_RELATIVE
    return kind, drop.qpn or 0, drop.psn or 0


def _name_filter(names: Iterable[NameKey]) -> bytes:
    """lab_fault_set.named: the bits that lab_name_maybe of xdp/lab_name.h reads."""
    bits = 0
    for kind, first, second in names:
        hashed = ((first << 32 | second) + kind) * _GOLDEN % 2**64
        bits |= 1 << (hashed >> (64 - _NAME_BITS))
    words = (bits >> at & 2**64 - 1 for at in range(0, 1 << _NAME_BITS, 64))
    return b"".join(word.to_bytes(8, sys.byteorder) for word in words)


@dataclasses.dataclass(frozen=True, slots=True)
class LinkRules:
    """All that XDP needs of the faults of one directed link."""

    value: bytes  # struct lab_fault_set
    names: dict[NameKey, bytes]  # struct lab_named
    rule_ids: tuple[int, ...]  # of the rules in `value`, by position
    learns: bool  # whether switches have to know connections
    shaped: bool  # whether frames go through the wire stage

    @property
    def empty(self) -> bool:
        """Whether no packet need be decided."""
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
                _iters(fault.effect.iters), 0, 0, window(fault.window), fault.rule_id, 0
            )
            names.setdefault(_name(fault.effect), value)
    relative = any(_is_relative(fault) for fault in faults)
    tails = any(fault.filter.takes_rc_tails for fault in faults)
    needs = _NEED_TIME * any(not fault.window.always for fault in faults)
    needs += _NEED_RELATIVE * relative
    needs += _NEED_TAIL * tails
    needs += _NEED_FILTER * any(not fault.filter.everything for fault in faults)
    needs += _NEED_DOWN * bool(names and any(isinstance(f.effect, Down) for f in faults))
    jitter = next((f for f in faults if isinstance(f.effect, Delay) and f.effect.jitter_ns), None)
    tuples = bytes(sorted({kind for kind, _, _ in names}))
    value = _SET.pack(
        *(len(laid), needs),
        *((_mixed(jitter.stream), _KEYS[jitter.key]) if jitter else (0, 0)),
        *(len(tuples), tuples.ljust(NAME_TUPLES, b"\0")),
        zlib.crc32(repr(sorted(names.items())).encode()) if names else 0,
        _name_filter(names),
        b"".join(rule for _, rule in laid),
    )
    shaped = any(fault.shapes for fault in faults)
    return LinkRules(value, names, tuple(rule_id for rule_id, _ in laid), relative or tails, shaped)


def _is_relative(fault: Fault) -> bool:
    asked = fault.effect if isinstance(fault.effect, NamedDrop) else fault.filter
    return asked.qpn is not None and not asked.absolute


def name_key(slot: int, name: NameKey) -> bytes:
    """struct lab_name_key; `slot` is 2 * directed link + slot."""
    return _NAME_KEY.pack(slot, *name)


def slot_of_name(key: bytes) -> int:
    """2 * directed link + slot of a struct lab_name_key."""
    return int(_NAME_KEY.unpack(key)[0])


@dataclasses.dataclass(frozen=True, slots=True)
class Hits:
    """What a rule did so far to the packets that reached it while it acted."""

    rule_id: int
    seen: int | None  # None: a named packet, whose rule sees nothing else
    hits: int
    runs: int  # of consecutive packets that it hit

    @property
    def rate(self) -> float | None:
        """Hits a packet seen."""
        return self.hits / self.seen if self.seen else None

    @property
    def mean_run(self) -> float | None:
        """Packets in a run of hits."""
        return self.hits / self.runs if self.runs else None


def rule_hits(state: bytes, rule_ids: Sequence[int]) -> list[Hits]:
    """From struct lab_fault_state."""
    found = _RULE_STATE.iter_unpack(state[_STATE_HEAD.size :])
    return [
        Hits(rule_id, seen, hits, runs)
        for rule_id, (_, seen, hits, runs, _) in zip(rule_ids, found, strict=False)
    ]


def rule_ids(value: bytes) -> tuple[int, ...]:
    """Of the rules in a struct lab_fault_set, by position."""
    count, *_, packed = _SET.unpack(value)
    rules = list(_RULE.iter_unpack(packed))[:count]
    return tuple(int(rule[7]) for rule in rules)


def named_hits(value: bytes) -> Hits:
    """From struct lab_named."""
    _, _, hits, _, rule_id, _ = _NAMED.unpack(value)
    return Hits(int(rule_id), None, int(hits), int(hits))


def fresh_named(value: bytes) -> bytes:
    """A struct lab_named that has seen nothing yet."""
    iters, _, _, when, rule_id, zero = _NAMED.unpack(value)
    return _NAMED.pack(iters, 0, 0, when, rule_id, zero)
