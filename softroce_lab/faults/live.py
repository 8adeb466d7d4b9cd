# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes of faults while traffic runs: a plan in, a plan out; only what is named changes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from softroce_lab.errors import UserError
from softroce_lab.faults import check
from softroce_lab.faults.check import Placed
from softroce_lab.faults.drops import DropEvent
from softroce_lab.faults.model import BESIDE, EFFECTS, Impairments
from softroce_lab.faults.resolve import Ground, Origin, place, with_faults
from softroce_lab.faults.words import tokens
from softroce_lab.inputs.validation import did_you_mean, validate
from softroce_lab.inputs.yaml_source import Data, Source
from softroce_lab.plan.effects import Fault, NamedDrop, Word
from softroce_lab.plan.plan import Half, Plan

LIVE_RULE = "live"  # begins the names of what was set; no written rule has a colon

_FLAGS = ("down", "up", "trim")
_SIZED = ("trim",)  # flags that may have a quantity after them
_EXAMPLES = {
    "drop": "drop tail 1 iter 1",
    "loss": "loss random 1%",
    "reorder": "reorder 1% by 100us",
    "rate": "rate 200Mbit limit 100",
    "limit": "rate 200Mbit limit 100",
    "ecn": "rate 200Mbit limit 100 ecn 30",
    "trim": "rate 200Mbit limit 100 trim",
    "trim_share": "rate 200Mbit limit 100 trim trim_share 25%",
    "queue": "rate 200Mbit queue uet",
    "delay": "delay 10ms 2ms",
    "jitter": "delay 10ms 2ms",
    "distribution": "delay 10ms 2ms distribution normal",
    "only": "only data",
}
_WORDS = (*EFFECTS, "up", "only", *BESIDE["rate"], *BESIDE["delay"])
_OWN = {  # words that belong to the one before them
    "drop": DropEvent.written_keys(),
    "rate": BESIDE["rate"],
    "delay": BESIDE["delay"],
}
_HOME = {key: word for word, keys in BESIDE.items() for key in keys}
_OF_RULES = ("at", "for", "every", "key")
_MANY_QPS = 255  # a relative number above that looks like one on the wire
_LINK_FIRST = "LINK comes first: 'leaf1<->spine1' loss 1%; '*' for all links"
_ORDER_OF_DELAY = ("allow", "preserve")


def set_on(
    plan: Plan, directed_links: Iterable[int], impairments: Impairments, *, seed: int | None = None
) -> Plan:
    """Replace, on these directed links, exactly the words that `impairments` name.

    All other faults stay as they are, with their ids. UserError if that contradicts one of them.
    """
    ground = Ground.of(plan, seed)
    halves = [_half(plan, number) for number in dict.fromkeys(directed_links)]
    numbers = {half[0] for half in halves}
    kept = [f for f in plan.faults if not _named(plan, f, numbers, impairments.words)]
    placed = list(place(impairments, Origin(LIVE_RULE, scope=True), halves, ground))
    return _changed(plan, kept, placed)


def clear_on(
    plan: Plan, directed_links: Iterable[int], words: Sequence[Word] | None = None
) -> Plan:
    """Remove the faults of these words, or all, from these directed links."""
    numbers = set(directed_links)
    named = EFFECTS if words is None else words
    return _changed(plan, [f for f in plan.faults if not _named(plan, f, numbers, named)], [])


def _half(plan: Plan, number: int) -> Half:
    return plan.links[number // 2].halves[number % 2]


def _named(plan: Plan, fault: Fault, numbers: set[int], words: Sequence[str]) -> bool:
    """Whether it is to go; a link is down, or up, in both directions."""
    here = fault.directed_link in numbers
    there = fault.word == "down" and fault.directed_link ^ 1 in numbers
    return fault.word in words and (here or there)


def _changed(plan: Plan, kept: Sequence[Fault], placed: Sequence[Placed]) -> Plan:
    check.check(plan, [*map(Placed, kept), *placed])
    return with_faults(plan, kept, [item.fault for item in placed])


def notes(faults: Iterable[Fault]) -> Iterator[str]:
    """What is allowed, and hardly meant: the number of a QP on the wire, without `absolute`."""
    named = (f.effect if isinstance(f.effect, NamedDrop) else f.filter for f in faults)
    far = {n.qpn for n in named if n.qpn is not None and not n.absolute and n.qpn > _MANY_QPS}
    for qpn in sorted(far):
        yield (
            f"qpn {qpn} is the sender's connection number {qpn:,}, in the order of first use; "
            "with `absolute` it is the QP number on the wire"
        )


# --- What a command prints -------------------------------------------------------------------


def parse_impairments(words: Sequence[str]) -> Impairments:
    """`loss gemodel 1% 25% delay 10ms 2ms rate 200mbit limit 100`, as tc-netem has it; UserError.

    `up` is the opposite of `down`. `drop` may stand several times.
    """
    data: dict[str, Data] = {}
    for word, rest in _split(tokens(" ".join(words))):
        key = "down" if word == "up" else word
        if key == "drop":
            events = data.get(key, [])
            data[key] = [*(events if isinstance(events, list) else ()), _value(word, rest)]
        elif key in data:
            raise UserError(f"{key!r} stands twice")
        else:
            data[key] = _value(word, rest)
    for key, home in _HOME.items():
        if key in data and home not in data:
            what = f"{key!r} without a {home}"
            raise UserError(what, hint=f"name the {home} again: {_EXAMPLES[key]}")
    return validate(Impairments, Source(None, data, {}, {}))


def _value(word: str, rest: Sequence[str]) -> str | bool:
    if word not in _FLAGS or (word in _SIZED and rest and rest != ["true"]):
        if rest:
            return " ".join(rest)
        example = _EXAMPLES.get(word, f"{word} 1%" if word in EFFECTS else f"{word} 100")
        raise UserError(f"{word!r} has no value after it", hint=f"such as: {example}")
    if rest and rest != ["true"]:
        raise UserError(f"unexpected {rest[0]!r}", hint=did_you_mean(rest[0], _WORDS))
    return word != "up"


def _split(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    if not words:
        raise UserError("no fault is named", hint="such as: loss random 1%")
    _check_words(words)
    current, rest = words[0], list[str]()
    for word, following in itertools.zip_longest(words[1:], words[2:], fillvalue=""):
        if word in _WORDS and not _belongs(word, current, following):
            yield current, rest
            current, rest = word, []
        else:
            rest.append(word)
    yield current, rest


def _check_words(words: Sequence[str]) -> None:
    """UserError for what stands in another place, or in none."""
    for number, word in enumerate(words):
        periodic = "periodic" in words[:number] and word == "every"
        if word in _OF_RULES and not periodic:
            hint = "write it into a file: lab up TOPOLOGY --faults FILE, or lab fault apply FILE"
            raise UserError(
                f"{word!r} belongs in a rule of a file, not in a live change", hint=hint
            )
        if "->" in word:
            raise UserError(f"unexpected link {word!r}", hint=_LINK_FIRST)
    if words[0] not in _WORDS:
        near = _LINK_FIRST if words[0][:1].isdigit() else did_you_mean(words[0], _WORDS)
        raise UserError(f"unknown fault {words[0]!r}", hint=near)


def _belongs(word: str, current: str, following: str) -> bool:
    if current == "delay" and word == "reorder":
        return following in _ORDER_OF_DELAY
    return word in _OWN.get(current, ())


def parse_cleared(words: Sequence[str]) -> tuple[Word, ...]:
    """The effects that `lab fault clear LINK WORD ...` names; UserError."""
    for word in words:
        home = _HOME.get(word)
        if home is not None and home not in words:
            hint = f"set the {home} again without it, or clear the whole {home}"
            raise UserError(f"{word!r} is a part of {home!r}", hint=hint)
        if home is None and word not in EFFECTS:
            raise UserError(f"unknown fault {word!r}", hint=did_you_mean(word, EFFECTS))
    return cast("tuple[Word, ...]", tuple(word for word in EFFECTS if word in words))
