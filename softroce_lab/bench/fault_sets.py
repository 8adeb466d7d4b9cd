# SPDX-License-Identifier: GPL-2.0-or-later
"""What `lab bench faults` arms on one directed link: no more than 1 % of the frames are lost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from softroce_lab import units
from softroce_lab.plan.effects import (
    Blackout,
    Corrupt,
    Drop,
    Effect,
    Fault,
    Filter,
    Gemodel,
    NamedDrop,
    Periodic,
    RandomLoss,
    Window,
)

NAMES = 64
_HOUR_NS = 3_600_000_000_000
_STREAM = 0x5EED_0F_FA175  # any number: what matters here is the speed, not who is hit

_ONE_PERCENT = units.threshold(Fraction(1, 100))
_DATA = Filter(kinds=("data",))
_NOW = Window(length_ns=_HOUR_NS)
_LATER = Window(begin_ns=_HOUR_NS, length_ns=_HOUR_NS)
_EVERY_HOUR = Window(length_ns=_HOUR_NS, period_ns=2 * _HOUR_NS)


def random(link: int) -> tuple[Fault, ...]:
    """One frame of a hundred, each on its own."""
    return (_fault(0, link, RandomLoss(_ONE_PERCENT)),)


def gemodel(link: int) -> tuple[Fault, ...]:
    """A hundredth of the time, a state in which half of the frames are lost."""
    return (_fault(0, link, _burst_loss(Fraction(1, 990), Fraction(1, 10)), key="index"),)


def named(link: int) -> tuple[Fault, ...]:
    """64 frames by their names, spread over the first of a sample."""
    return tuple(
        _fault(number, link, NamedDrop(0, 256 * number, None, None, False, (1,)))
        for number in range(NAMES)
    )


def everything(link: int) -> tuple[Fault, ...]:
    """All that XDP decides on its own: 64 names of every sort, and as many rules as a link takes.

    With filters on every field, and windows.
    """
    sorts = (
        *(NamedDrop(0, 256 * number, None, None, False, (1,)) for number in range(NAMES - 2)),
        NamedDrop(None, None, 1, 2, False, (1,)),  # the PSN of all bare frames is 1, relatively
        NamedDrop(None, None, 0xFFFFFF, 1, True, ()),
    )
    rules: Sequence[tuple[Effect, Filter, Window]] = (
        (Drop(), Filter(kinds=("control", "report"), opcode=0x04), _NOW),
        (Drop(), Filter(qpn=0xFFFFFF, absolute=True, message=1, tail=2, iters=(2, 3)), _NOW),
        (RandomLoss(_ONE_PERCENT // 4), _DATA, _NOW),
        (_burst_loss(Fraction(1, 3960), Fraction(1, 10)), _DATA, _EVERY_HOUR),
        (Periodic(400, 1, 0), _DATA, _NOW),
        (Blackout(), Filter(), _LATER),
        (Corrupt(_ONE_PERCENT), _DATA, _NOW),
        (Corrupt(_ONE_PERCENT), Filter(kinds=("other",)), _EVERY_HOUR),
    )
    names = [_fault(number, link, effect) for number, effect in enumerate(sorts)]
    return (
        *names,
        *(
            dataclasses.replace(
                _fault(NAMES + number, link, effect, "index"), filter=wanted, window=window
            )
            for number, (effect, wanted, window) in enumerate(rules)
        ),
    )


SETS: Mapping[str, Callable[[int], tuple[Fault, ...]]] = {
    "random": random,
    "gemodel": gemodel,
    "named64": named,
    "all": everything,
}


def _burst_loss(begin: Fraction, end: Fraction) -> Gemodel:
    half = units.threshold(Fraction(1, 2))
    return Gemodel(units.threshold(begin), units.threshold(end), half, 0)


def _fault(number: int, link: int, effect: Effect, key: str = "identity") -> Fault:
    return Fault(
        rule=f"bench-{number}",
        rule_id=number,
        directed_link=link,
        key="index" if key == "index" else "identity",
        stream=_STREAM + number,
        effect=effect,
    )
