# SPDX-License-Identifier: GPL-2.0-or-later
"""What the faults of one directed link must hold together: no contradiction, no overflow."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from math import gcd
from typing import TypeVar

from softroce_lab.errors import UserError
from softroce_lab.faults.layout import FAULT_RULES, PARTS
from softroce_lab.inputs.yaml_source import NOWHERE, Place, Source
from softroce_lab.plan.effects import (
    Blackout,
    Delay,
    Effect,
    Fault,
    Filter,
    NamedDrop,
    Queue,
    RandomLoss,
    Reorder,
    Window,
)
from softroce_lab.plan.plan import Plan
from softroce_lab.units import format_rate

MAX_RULES = FAULT_RULES  # on one directed link, named drops aside
MAX_PARTS = PARTS  # delays, and queues, of one directed link
MAX_NAMES = 4096  # named drops on one directed link
MAX_NAMES_OF_LAB = 8192  # half of what the switches' table of names holds: they change in two slots
ETHERNET_BYTES = 14

_MANY = 2**63
_IN_XDP = ("rules", MAX_RULES, _MANY)  # what they are called, how many a directed link, a lab
_BOUNDS = {
    "named-drop": ("named drops", MAX_NAMES, MAX_NAMES_OF_LAB),
    "delay": ("delays", MAX_PARTS, _MANY),
    "queue": ("rates", MAX_PARTS, _MANY),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    fault: Fault
    source: Source = NOWHERE
    place: Place = ()

    def error(self, what: str, hint: str | None = None) -> UserError:
        return self.source.error(self.place, what, hint=hint)


def check(plan: Plan, placed: Iterable[Placed]) -> list[Placed]:
    """All of `placed`; UserError, at the later of two that contradict each other, if any do."""
    every = list(bounded(plan, placed))
    on_link: dict[int, list[Placed]] = collections.defaultdict(list)
    for item in every:
        on_link[item.fault.directed_link].append(item)
    for directed_link, items in on_link.items():
        where = _name(plan, directed_link)
        for test in (_check_names, _check_losses, _check_shapes, _check_reorders):
            test(items, where)
        _check_rates(items, plan.mtu, where)
        _check_marks(items, plan.mtu, where)
    return every


def bounded(plan: Plan, placed: Iterable[Placed]) -> Iterator[Placed]:
    """Pass them on; UserError as soon as there are too many, for a file may ask for millions."""
    counts: collections.Counter[tuple[str, int]] = collections.Counter()
    for item in placed:
        what, most, among = _BOUNDS.get(item.fault.effect.kind, _IN_XDP)
        for where, bound in ((item.fault.directed_link, most), (-1, among)):
            counts[what, where] += 1
            if counts[what, where] > bound:
                place = "in the lab" if where < 0 else f"on {_name(plan, where)}"
                raise item.error(f"more than {bound} {what} act {place}")
        yield item


def _name(plan: Plan, directed_link: int) -> str:
    _, sender, receiver = plan.links[directed_link // 2].halves[directed_link % 2]
    return f"{sender} -> {receiver}"


E = TypeVar("E", bound=Effect)


def _of(items: Iterable[Placed], kind: type[E]) -> list[tuple[Placed, E]]:
    return [(item, item.fault.effect) for item in items if isinstance(item.fault.effect, kind)]


def _check_names(items: Sequence[Placed], where: str) -> None:
    names: dict[NamedDrop, Placed] = {}
    for item, effect in _of(items, NamedDrop):
        name = dataclasses.replace(effect, iters=())
        if name in names:
            first = names[name].fault.rule
            what = f"the packet is named twice on {where}, first by rule {first!r}"
            raise item.error(what, hint="name all its transmissions at once: iter: [1, 2]")
        names[name] = item


def _check_losses(items: Sequence[Placed], where: str) -> None:
    """Models of loss act one at a time on a packet; `random` and `blackout` go with others."""
    losses = [item for item in items if item.fault.word == "loss"]
    losses = [item for item in losses if not isinstance(item.fault.effect, Blackout)]
    for first, second in itertools.combinations(losses, 2):
        a, b = first.fault, second.fault
        both_random = isinstance(a.effect, RandomLoss) and isinstance(b.effect, RandomLoss)
        if not both_random and _share_packets(a.filter, b.filter) and overlap(a.window, b.window):
            what = f"loss {b.effect.kind} contradicts loss {a.effect.kind} of rule {a.rule!r}"
            raise second.error(f"{what} on {where}", hint="give one of them other links or times")


def _share_packets(a: Filter, b: Filter) -> bool:
    one, other = map(_kinds, (a, b))
    return not (one and other) or bool(one & other)


def _kinds(asked: Filter) -> set[str]:
    """A path probe is a control packet, too."""
    return {*asked.kinds, "probe"} if "control" in asked.kinds else set(asked.kinds)


def _check_shapes(items: Sequence[Placed], where: str) -> None:
    for word in ("rate", "delay"):
        parts = [item for item in items if item.fault.word == word]
        for first, second in itertools.combinations(parts, 2):
            if overlap(first.fault.window, second.fault.window):
                what = f"{where} has a {word} already, by rule {first.fault.rule!r}"
                raise second.error(what, hint="give one of them other links or times")


def _check_reorders(items: Sequence[Placed], where: str) -> None:
    """What skips the delay needs one, as in netem; how far packets are moved is the link's."""
    delays = _of(items, Delay)
    delayed = [item.fault.window for item, delay in delays if delay.delay_ns or delay.jitter_ns]
    reorders = _of(items, Reorder)
    for item, effect in reorders:
        first, its_effect = reorders[0]
        if effect.extra_ns != its_effect.extra_ns:
            what = f"{where} reorders by another time already, by rule {first.fault.rule!r}"
            raise item.error(what)
        if not effect.extra_ns and not any(overlap(item.fault.window, w) for w in delayed):
            what = f"reorder lets packets skip the delay, and {where} has none"
            raise item.error(what, hint="add a delay, or hold them back: reorder: 1% by 100us")


def _check_rates(items: Sequence[Placed], mtu: int, where: str) -> None:
    least = (mtu + ETHERNET_BYTES) * 8
    for item, queue in _of(items, Queue):
        if queue.rate_bps < least:
            what = f"rate {format_rate(queue.rate_bps)} on {where} is below one frame a second"
            raise item.error(what, hint=f"at least {least} bit, for an MTU of {mtu} bytes")


def _check_marks(items: Sequence[Placed], mtu: int, where: str) -> None:
    """A frame that the queue takes finds less than the limit, for it has to fit in itself.

    A queue that trims when it is full, which is the default, needs no threshold.
    """
    for item, queue in _of(items, Queue):
        packets, size = queue.limit_packets, queue.limit_bytes
        if size is None and packets is not None:
            size = packets * (mtu + ETHERNET_BYTES)
        for word, can, of_packets, of_bytes in (
            ("ecn", "mark", queue.ecn_packets, queue.ecn_bytes),
            ("trim", "cut", queue.trim_packets, queue.trim_bytes),
        ):
            for threshold, limit in ((of_packets, packets), (of_bytes, size)):
                if threshold is not None and limit is not None and threshold >= limit:
                    full = packets if packets is not None else f"{size} bytes"
                    what = f"{word} on {where} can {can} nothing: the queue is full at {full}"
                    raise item.error(what, hint=f"choose a limit above {word}")


# --- Windows ---------------------------------------------------------------------------------


def overlap(a: Window, b: Window) -> bool:
    if a.period_ns and b.period_ns:
        return _rounds_meet(a, b)
    if a.period_ns:
        a, b = b, a
    if b.period_ns:
        return _round_meets(b, a)
    return _begins_before_end(a, b) and _begins_before_end(b, a)


def _begins_before_end(a: Window, b: Window) -> bool:
    return not b.length_ns or a.begin_ns < b.begin_ns + b.length_ns


def _round_meets(rounds: Window, once: Window) -> bool:
    """Of all rounds, the first that ends after `once` begins is the one to check."""
    if not once.length_ns:
        return True
    late = once.begin_ns - rounds.begin_ns - rounds.length_ns
    number = max(0, late // rounds.period_ns + 1)
    return rounds.begin_ns + number * rounds.period_ns < once.begin_ns + once.length_ns


def _rounds_meet(a: Window, b: Window) -> bool:
    """Two endless series meet at every distance of their rounds modulo the greatest divisor."""
    divisor = gcd(a.period_ns, b.period_ns)
    apart = (b.begin_ns - a.begin_ns) % divisor
    return apart < a.length_ns or divisor - apart < b.length_ns
