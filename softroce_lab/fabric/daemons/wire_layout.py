# SPDX-License-Identifier: GPL-2.0-or-later
"""What the wire stage counted: the structs of native/wire/figures.hpp."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
import struct
from collections.abc import Collection
from typing import Any, ClassVar, Self

from softroce_lab.structs import CONSTANTS, Struct

_OCTAVE_BITS: int = CONSTANTS["wire::Histogram::kOctaveBits"]


def _lower_bound(bucket: int) -> int:
    """The least value of a bucket, or of the one behind the last."""
    shift = max(0, (bucket >> _OCTAVE_BITS) - 1)
    return (bucket - (shift << _OCTAVE_BITS)) << shift


@dataclasses.dataclass(frozen=True, slots=True)
class Histogram:
    """How often each duration occurred: 16 buckets an octave."""

    ERROR: ClassVar = 2.0 ** -(_OCTAVE_BITS + 1)  # of a percentile at most: half a bucket

    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.counts)

    def percentile(self, percent: float) -> int | None:
        """Nanoseconds that so many percent did not exceed, to within `ERROR`; None: empty."""
        if not self.total:
            return None
        rank = max(1, math.ceil(self.total * percent / 100))
        bucket = bisect.bisect_left(list(itertools.accumulate(self.counts)), rank)
        return (_lower_bound(bucket) + _lower_bound(bucket + 1) - 1) // 2

    @classmethod
    def unpack(cls, words: bytes) -> Histogram:
        return cls(struct.unpack(f"={len(words) // 8}Q", words))

    def __sub__(self, before: Histogram) -> Histogram:
        pairs = zip(self.counts, before.counts, strict=True)
        return Histogram(tuple(now - then for now, then in pairs))


def _figures(name: str, levels: Collection[str]) -> Any:
    """The class of a struct's records, which subtract: what was counted since.

    Members that are levels stay as they are now.
    """
    layout = Struct(name)

    class Figures(layout.record):
        __slots__ = ()

        def __sub__(self, before: Self) -> Self:
            pairs = zip(layout.members, self, before, strict=True)
            return self._make(now if name in levels else now - then for name, now, then in pairs)

        @classmethod
        def unpack(cls, payload: bytes) -> Self:
            return cls._make(layout.unpack(payload))

    return Figures


_LINK_LEVELS = (
    "held", "waiting_packets", "waiting_bytes", "most_waiting_packets", "most_waiting_bytes",
    "first_ns", "last_ns", "first_bytes", "late_most_ns",
)  # fmt: skip


class LinkFigures(_figures("wire::LinkFigures", _LINK_LEVELS)):
    """Of one directed link, since the stage began."""

    __slots__ = ()

    @classmethod
    def unpack(cls, payload: bytes) -> Self:
        found = super().unpack(payload)
        late, residence = Histogram.unpack(found.late), Histogram.unpack(found.residence)
        return found._replace(late=late, residence=residence)

    @property
    def rate_bps(self) -> float | None:
        """Bits a second from the first release to the last; None before the second."""
        took_ns = self.last_ns - self.first_ns
        return 8e9 * (self.released_bytes - self.first_bytes) / took_ns if took_ns > 0 else None

    def rate_since(self, before: LinkFigures) -> float | None:
        """Bits a second from the last release in `before` to the last one now."""
        took_ns = self.last_ns - before.last_ns
        if not before.released:
            return self.rate_bps
        return (
            8e9 * (self.released_bytes - before.released_bytes) / took_ns if took_ns > 0 else None
        )


class PortFigures(_figures("wire::PortFigures", ("is_gone",))):
    """Of one port, since it was opened."""

    __slots__ = ()

    @property
    def lost_before(self) -> int:
        """Frames that no link of the stage ever had: its socket had no room, or no way on.

        The kernel counts a frame that finds the fill ring empty among those dropped, too
        (`xsk_rcv` of net/xdp/xsk.c).
        """
        return self.rx_ring_full + self.rx_dropped + self.unknown

    @property
    def lost_by_emulator(self) -> int:
        """Frames that no fault took."""
        return self.lost_before + self.lost_port_down + self.tx_failed


_STAGE_LEVELS = (
    "fifo", "fifo_errno", "frames", "free_frames", "reserved_frames", "held", "ports",
)  # fmt: skip


class StageFigures(_figures("wire::StageFigures", _STAGE_LEVELS)):
    """Of the whole stage, since it began."""

    __slots__ = ()

    @property
    def cpu_share(self) -> float:
        return self.cpu_ns / self.wall_ns if self.wall_ns else 0.0
