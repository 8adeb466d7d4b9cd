# SPDX-License-Identifier: GPL-2.0-or-later
"""A directed link's queues and delays as native code reads them: lab_shape of lab_shape.h."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from softroce_lab.faults.layout import window
from softroce_lab.plan.effects import CERTAIN, Delay, Fault, Queue, Reorder, Window

PARTS = 4  # LAB_SHAPE_PARTS: delays, and queues, of one directed link

_DISTRIBUTIONS = {"uniform": 0, "normal": 1, "pareto": 2}  # enum lab_distribution
_DELAY = struct.Struct("=QQII24s")
_QUEUE = struct.Struct("=QQQQQII24s")
_SHAPE = struct.Struct(f"=QII{PARTS * _DELAY.size}s{PARTS * _QUEUE.size}s")

SHAPE_BYTES = _SHAPE.size


def _limit(number: int | None) -> int:
    return CERTAIN if number is None else number


def _delay(effect: Delay, when: Window) -> bytes:
    kind = _DISTRIBUTIONS[effect.distribution]
    return _DELAY.pack(effect.delay_ns, effect.jitter_ns, kind, effect.preserve, window(when))


def _queue(effect: Queue, when: Window) -> bytes:
    return _QUEUE.pack(
        effect.rate_bps,
        _limit(effect.limit_bytes),
        _limit(effect.limit_packets),
        _limit(effect.ecn_bytes),
        _limit(effect.ecn_packets),
        effect.trim,
        0,
        window(when),
    )


def shape(faults: Sequence[Fault]) -> bytes:
    """struct lab_shape of one directed link, from its faults in their order.

    Of several delays, or queues, the last whose window acts counts; so does, of several reorder
    faults, what the last one lets packets wait. ValueError if there are more parts than fit.
    """
    delays = [_delay(f.effect, f.window) for f in faults if isinstance(f.effect, Delay)]
    queues = [_queue(f.effect, f.window) for f in faults if isinstance(f.effect, Queue)]
    extras = [f.effect.extra_ns for f in faults if isinstance(f.effect, Reorder)]
    if max(len(delays), len(queues)) > PARTS:
        raise ValueError(f"{len(delays)} delays and {len(queues)} queues, at most {PARTS} fit")
    extra_ns = extras[-1] if extras else 0
    return _SHAPE.pack(extra_ns, len(delays), len(queues), b"".join(delays), b"".join(queues))
