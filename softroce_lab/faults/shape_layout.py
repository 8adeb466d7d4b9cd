# SPDX-License-Identifier: GPL-2.0-or-later
"""A directed link's queues and delays as native code reads them: lab_shape of lab_shape.h."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from softroce_lab.faults.layout import window
from softroce_lab.plan.effects import CERTAIN, Delay, Fault, Queue, Reorder, Window
from softroce_lab.structs import CONSTANTS, Struct, enumerators

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
        return _QUEUE.pack(**values, window=window(when))
    values["distribution"] = _DISTRIBUTIONS[effect.distribution]
    return _DELAY.pack(**values, window=window(when))


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
