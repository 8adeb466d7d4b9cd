# SPDX-License-Identifier: GPL-2.0-or-later
"""What goes over wire.sock: the layouts of native/wire/{protocol,figures}.hpp.

All in the machine's byte order. A link's shape is faults/shape_layout.py's; what
the wire stage counted is unpacked into `LinkFigures`, `PortFigures` and `StageFigures`, which
subtract: the counts between two readings.
"""

from __future__ import annotations

import bisect
import dataclasses
import enum
import itertools
import math
import struct
from typing import ClassVar, Self

from softroce_lab.faults.shape_layout import SHAPE_BYTES

_REQUEST = struct.Struct(f"=II{SHAPE_BYTES}s")
_ANSWER = struct.Struct("=II")
_NO_ROOM = struct.Struct("=QQQ")

ANSWER_MOST_BYTES = 1 << 16


class Operation(enum.IntEnum):
    """enum Operation."""

    OPEN_PORT = 1
    SHAPE = 2
    EPOCH = 3
    LINK_FIGURES = 4
    PORT_FIGURES = 5
    STAGE_FIGURES = 6
    LINK_BASE = 7
    PAUSES = 8


class Status(enum.IntEnum):
    """enum Status."""

    DONE = 0
    FAILED = 1
    NO_ROOM = 2


@dataclasses.dataclass(frozen=True, slots=True)
class NoRoom:
    """Why a shape is refused, in frames of 4 KiB."""

    needed: int
    available: int
    all: int


def request(operation: Operation, number: int = 0, body: bytes = b"") -> bytes:
    """struct Request."""
    return _REQUEST.pack(operation, number, body)


def ends(rx_link: int, tx_link: int) -> bytes:
    """The directed links that end and begin at a port."""
    return struct.pack("=II", rx_link, tx_link)


def epoch(moment_ns: int) -> bytes:
    """CLOCK_MONOTONIC of the timeline's moment 0."""
    return struct.pack("=Q", moment_ns)


def answer(packet: bytes) -> tuple[Status, bytes]:
    """struct Answer and its payload. ValueError if it is none."""
    if len(packet) < _ANSWER.size:
        raise ValueError(f"an answer of {len(packet)} bytes")
    status, size = _ANSWER.unpack_from(packet)
    if len(packet) != _ANSWER.size + size:
        raise ValueError(f"an answer of {len(packet)} bytes, not {_ANSWER.size + size}")
    return Status(status), packet[_ANSWER.size :]


def pauses(payload: bytes) -> list[tuple[int, int]]:
    """Begin and end of each struct Pause."""
    return list(struct.iter_unpack("=QQ", payload))


def no_room(payload: bytes) -> NoRoom:
    """struct NoRoom."""
    return NoRoom(*_NO_ROOM.unpack(payload))


# --- Figures ---------------------------------------------------------------------------------

_OCTAVE_BITS = 4
_BUCKETS = 592


def _lower_bound(bucket: int) -> int:
    """The least value of a bucket, or of the one behind the last."""
    shift = max(0, (bucket >> _OCTAVE_BITS) - 1)
    return (bucket - (shift << _OCTAVE_BITS)) << shift


def _words(payload: bytes) -> tuple[int, ...]:
    return struct.unpack(f"={len(payload) // 8}Q", payload)


@dataclasses.dataclass(frozen=True, slots=True)
class Histogram:
    """How often each duration occurred: 16 buckets an octave."""

    ERROR: ClassVar = 2.0 ** -(_OCTAVE_BITS + 1)  # of a percentile at most: half a bucket

    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """All that was counted."""
        return sum(self.counts)

    def percentile(self, percent: float) -> int | None:
        """Nanoseconds that so many percent did not exceed, to within `ERROR`; None: empty."""
        if not self.total:
            return None
        rank = max(1, math.ceil(self.total * percent / 100))
        bucket = bisect.bisect_left(list(itertools.accumulate(self.counts)), rank)
        return (_lower_bound(bucket) + _lower_bound(bucket + 1) - 1) // 2

    def __sub__(self, before: Histogram) -> Histogram:
        pairs = zip(self.counts, before.counts, strict=True)
        return Histogram(tuple(now - then for now, then in pairs))


@dataclasses.dataclass(frozen=True, slots=True)
class _Figures:
    """Numbers that grow, but for those in `_LEVELS`, which are as they are."""

    _LEVELS: ClassVar[frozenset[str]] = frozenset()

    def __sub__(self, before: Self) -> Self:
        """What was counted since `before`; levels stay as they are now."""
        names = [field.name for field in dataclasses.fields(self) if field.name not in self._LEVELS]
        changes = {name: getattr(self, name) - getattr(before, name) for name in names}
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass(frozen=True, slots=True)
class LinkFigures(_Figures):
    """Of one directed link, since the stage began.

    arrived + duplicated = released + dropped_limit + gone + lost_port_down + tx_failed + held +
    waiting_packets. Names in `_roce` count UDP datagrams to port 4791 among them.
    """

    _LEVELS: ClassVar[frozenset[str]] = frozenset(
        {
            *("held", "waiting_packets", "waiting_bytes"),
            *("most_waiting_packets", "most_waiting_bytes"),
            *("first_ns", "last_ns", "first_bytes", "late_most_ns"),
        }
    )

    arrived: int
    arrived_roce: int
    duplicated: int  # second copies made
    duplicated_roce: int
    copies_missed: int  # not made, for no frame was free
    released: int
    released_roce: int
    released_bytes: int  # of the released ones, Ethernet headers included
    dropped_limit: int  # found the queue full
    dropped_limit_roce: int
    gone: int  # taken by a rule, once they had crossed their uplink
    gone_roce: int
    lost_port_down: int  # the port to leave by was down, or is no more
    lost_port_down_roce: int
    tx_failed: int  # the kernel took no more: lost by the emulator
    tx_failed_roce: int
    marked: int  # CE
    trimmed: int
    reordered: int  # chosen ones that really left out of turn
    overtaken: int  # released after one that was sent later (RFC 4737)
    held: int  # on the wire just now
    waiting_packets: int  # in the queue just now
    waiting_bytes: int
    most_waiting_packets: int  # since the shape was set
    most_waiting_bytes: int
    first_ns: int  # CLOCK_MONOTONIC of the first and the last release
    last_ns: int
    first_bytes: int  # of the first release
    late_most_ns: int
    late: Histogram  # between the moment that was due and the release
    residence: Histogram  # between arrival and release

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

    @classmethod
    def unpack(cls, payload: bytes) -> LinkFigures:
        """struct LinkFigures."""
        words = _words(payload)
        late, residence = words[-2 * _BUCKETS : -_BUCKETS], words[-_BUCKETS:]
        names = [field.name for field in dataclasses.fields(cls)][:-2]
        numbers = dict(zip(names, words, strict=False))
        return cls(**numbers, late=Histogram(late), residence=Histogram(residence))


@dataclasses.dataclass(frozen=True, slots=True)
class PortFigures(_Figures):
    """Of one port, since it was opened."""

    _LEVELS: ClassVar[frozenset[str]] = frozenset(("is_gone",))

    received: int
    transmitted: int
    unknown: int  # meant for a port that was never opened
    lost_port_down: int
    tx_failed: int
    rx_ring_full: int  # this and the next two were lost before the stage saw them
    rx_fill_ring_empty: int  # among rx_dropped
    rx_dropped: int
    is_gone: int  # the interface is no more

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

    @classmethod
    def unpack(cls, payload: bytes) -> PortFigures:
        """struct PortFigures."""
        return cls(*_words(payload))


@dataclasses.dataclass(frozen=True, slots=True)
class StageFigures(_Figures):
    """Of the whole stage, since it began."""

    _LEVELS: ClassVar[frozenset[str]] = frozenset(
        ("fifo", "fifo_errno", "frames", "free_frames", "reserved_frames", "held", "ports")
    )

    cpu_ns: int  # of the thread that moves frames
    wall_ns: int
    fifo: int  # whether it runs under SCHED_FIFO
    fifo_errno: int  # else why not
    frames: int  # in the pool, of 4 KiB each
    free_frames: int
    reserved_frames: int  # that the shapes may need
    held: int  # on links or in queues
    ports: int
    fair_turns: int  # without SCHED_FIFO, for the sake of others

    @property
    def cpu_share(self) -> float:
        """Of one core."""
        return self.cpu_ns / self.wall_ns if self.wall_ns else 0.0

    @classmethod
    def unpack(cls, payload: bytes) -> StageFigures:
        """struct StageFigures."""
        return cls(*_words(payload))
