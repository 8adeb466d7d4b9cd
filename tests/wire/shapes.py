# SPDX-License-Identifier: GPL-2.0-or-later
"""Links and their shapes, for the tests of the wire stage."""

from __future__ import annotations

from softroce_lab import _native
from softroce_lab.fabric.daemons.wire_layout import LinkFigures
from softroce_lab.faults import layout
from softroce_lab.plan.effects import Delay, Effect, Fault, Queue, Reorder, Window

NS = 1000  # picoseconds
US = 1000 * NS
MS = 1000 * US
SECOND = 1000 * MS
NEVER = 2**63 - 1

DROP, DUPLICATE, REORDER = 1, 4, 8  # enum lab_effect
ALWAYS = Window()


def fault(effect: Effect, window: Window = ALWAYS) -> Fault:
    return Fault("test", 0, 0, "index", 1, effect, window=window)


def queue(
    rate_bps: int = 0,
    *,
    limit_bytes: int | None = None,
    limit_packets: int | None = None,
    ecn_bytes: int | None = None,
    ecn_packets: int | None = None,
    trim: bool = False,
    **trimming: int,
) -> Queue:
    return Queue(rate_bps, limit_bytes, limit_packets, ecn_bytes, ecn_packets, trim, **trimming)


def delay(ns: int, jitter_ns: int = 0, distribution="uniform", preserve: bool = True) -> Delay:
    return Delay(ns, jitter_ns, distribution, preserve)


def reorder(extra_ns: int = 0) -> Reorder:
    return Reorder(1, 0, extra_ns)


def packed(*parts: Effect | Fault) -> bytes:
    return layout.shape([p if isinstance(p, Fault) else fault(p) for p in parts])


class Link:
    """A native link, and what departed from it."""

    def __init__(self, *parts: Effect | Fault) -> None:
        self.native = _native.ShapedLink()
        self.shape(*parts)
        self.gone: list[tuple[int, int, bool, bool, int]] = []

    def shape(self, *parts: Effect | Fault) -> None:
        self.native.shape(packed(*parts))

    def offer(self, now: int, handle: int, length: int = 1000, **facts) -> bool:
        taken = self.native.offer(now, handle, length, **facts)
        self.gone += self.native.departures()
        return taken

    def advance(self, now: int) -> None:
        self.native.advance(now)
        self.gone += self.native.departures()

    def finish(self) -> None:
        """Let everything leave."""
        while (moment := self.native.next()) != NEVER:
            self.advance(moment)
        self.native.release()

    def figures(self) -> LinkFigures:
        return LinkFigures.unpack(self.native.figures())

    @property
    def due(self) -> list[tuple[int, int]]:
        """(handle, picoseconds), in the order of departure."""
        order = sorted(range(len(self.gone)), key=lambda i: (self.gone[i][4], i))
        return [(self.gone[i][0], self.gone[i][4]) for i in order]
