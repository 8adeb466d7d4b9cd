# SPDX-License-Identifier: GPL-2.0-or-later
"""One set of impairments -> the effects and filters that it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from softroce_lab.errors import UserError
from softroce_lab.faults.drops import DropEvent
from softroce_lab.faults.model import (
    BurstSpec,
    DelaySpec,
    GemodelSpec,
    Impairments,
    Loss,
    QueueSpec,
)
from softroce_lab.inputs.yaml_source import Place
from softroce_lab.plan.effects import (
    Blackout,
    Burst,
    Corrupt,
    Delay,
    Down,
    Drop,
    Duplicate,
    Effect,
    Filter,
    Gemodel,
    NamedDrop,
    Periodic,
    Queue,
    RandomLoss,
    Reorder,
)
from softroce_lab.plan.effects import Loss as LossEffect
from softroce_lab.units import threshold

DEFAULT_LIMIT_PACKETS = 1000  # tc-netem's


class Lowered(NamedTuple):
    """An effect, the packets it looks at, and the key it was written at."""

    effect: Effect
    filter: Filter
    place: Place


def remembers(effect: Effect) -> bool:
    """Whether it hangs on the packets before, so that `index` alone can key it."""
    match effect:
        case Gemodel() | Burst() | Periodic():
            return True
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
        yield Lowered(_loss(spec.loss), kinds, ("loss",))
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


def _loss(loss: Loss) -> LossEffect:
    if loss.random is not None:
        return RandomLoss(threshold(loss.random))
    if loss.gemodel is not None:
        return _gemodel(loss.gemodel)
    if loss.burst is not None:
        return Burst(threshold(_begin_probability(loss.burst)), loss.burst.length)
    if loss.periodic is not None:
        return Periodic(loss.periodic.every, loss.periodic.length, loss.periodic.offset)
    return Blackout()


def _gemodel(spec: GemodelSpec) -> Gemodel:
    """With what netem takes for the parameters that are left out."""
    r = 1 - spec.p if spec.r is None else spec.r
    loss_bad = Fraction(1) if spec.loss_bad is None else spec.loss_bad
    loss_good = Fraction(0) if spec.loss_good is None else spec.loss_good
    return Gemodel(threshold(spec.p), threshold(r), threshold(loss_bad), threshold(loss_good))


def _begin_probability(spec: BurstSpec) -> Fraction:
    """With which a packet outside of a burst begins one, so that bursts take `rate` of all.

    Between two bursts of L packets lie (1-q)/q others on average, hence rate = Lq / (Lq + 1 - q).
    """
    q = spec.rate / (spec.length * (1 - spec.rate) + spec.rate)
    if q and not threshold(q):
        raise UserError("bursts so rare cannot be expressed in 64 bits")
    return q


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
