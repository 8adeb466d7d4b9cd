# SPDX-License-Identifier: GPL-2.0-or-later
"""One set of impairments -> the effects and filters that it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from softroce_lab.faults.drops import DropEvent
from softroce_lab.faults.model import (
    DelaySpec,
    Impairments,
    QueueSpec,
)
from softroce_lab.inputs.yaml_source import Place
from softroce_lab.plan.effects import (
    Corrupt,
    Delay,
    Down,
    Drop,
    Duplicate,
    Effect,
    Filter,
    LossModel,
    NamedDrop,
    Queue,
    Reorder,
)
from softroce_lab.units import threshold

DEFAULT_LIMIT_PACKETS = 1000  # tc-netem's


class Lowered(NamedTuple):
    """An effect, the packets it matches, and the key it was written at."""

    effect: Effect
    filter: Filter
    place: Place


def remembers(effect: Effect) -> bool:
    """Whether it hangs on the packets before, so that `index` alone can key it."""
    match effect:
        case LossModel():
            return effect.remembers
        case Reorder(gap=gap):
            return gap > 0
    return False


def lower(spec: Impairments) -> Iterator[Lowered]:
    """All effects, in the order in which they meet a packet."""
    kinds = Filter(kinds=spec.only or ())
    if spec.down:
        yield Lowered(Down(), Filter(), ("down",))
    for index, event in enumerate(spec.drop or ()):
        yield from _drop(event, kinds, ("drop", index))
    if spec.loss is not None:
        yield Lowered(spec.loss.effect, kinds, ("loss",))
    if spec.corrupt is not None:
        yield Lowered(Corrupt(threshold(spec.corrupt.percent)), kinds, ("corrupt",))
    if spec.duplicate is not None:
        yield Lowered(Duplicate(threshold(spec.duplicate.percent)), kinds, ("duplicate",))
    if spec.reorder is not None:
        gap = spec.reorder.gap if spec.reorder.gap > 1 else 0  # as in netem, 1 leaves no gap
        out_of_turn = Reorder(threshold(spec.reorder.percent), gap, spec.reorder.by or 0)
        yield Lowered(out_of_turn, kinds, ("reorder",))
    if (rate := spec.whole_rate) is not None:
        yield Lowered(_queue(rate), Filter(), ("rate",))
    if (delay := spec.whole_delay) is not None:
        yield Lowered(_delay(delay), Filter(), ("delay",))


def _drop(event: DropEvent, kinds: Filter, place: Place) -> Iterator[Lowered]:
    iters = event.iter or ()
    if not event.named:
        wanted = Filter(
            kinds=event.only or kinds.kinds,
            opcode=event.opcode,
            qpn=event.qpn,
            absolute=event.absolute,
            message=event.message,
            tail=event.tail,
            iters=iters,
        )
        yield Lowered(Drop(), wanted, place)
    for packet in event.packet or ():
        yield Lowered(NamedDrop(event.message, packet, None, None, False, iters), Filter(), place)
    for psn in event.psn or ():
        named = NamedDrop(None, None, event.qpn, psn, event.absolute, iters)
        yield Lowered(named, Filter(), place)


def _queue(spec: QueueSpec) -> Queue:
    packets, size = spec.limit or (DEFAULT_LIMIT_PACKETS, None)
    ecn_packets, ecn_bytes = spec.ecn or (None, None)
    return Queue(spec.rate, size, packets, ecn_bytes, ecn_packets, spec.trim)


def _delay(spec: DelaySpec) -> Delay:
    return Delay(
        delay_ns=spec.delay,
        jitter_ns=spec.jitter or 0,
        distribution=spec.distribution or "uniform",
        preserve=spec.reorder == "preserve",
    )
