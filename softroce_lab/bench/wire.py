# SPDX-License-Identifier: GPL-2.0-or-later
"""What the wire stage moves, and how exactly: part of `lab bench faults`.

Frames leave an AF_XDP socket at an even pace, each with its number and the moment; a program at the
receiver's port notes when each arrives. What a frame takes without faults is subtracted by its
median.

    capacity  the fastest pace at which no frame of 1 KiB is lost over a link with 1 ms of delay
    delay     1 ms requested, 50,000 frames a second: how far frames are from it, either way
    rate      200 Mbit/s requested, half as much again offered: what arrives in a second
    queue     a burst at a queue: how many wait at most, and from which one on frames are marked
"""

from __future__ import annotations

import dataclasses
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab import _native
from softroce_lab.bench import stamps as xdp_stamps
from softroce_lab.bench.bare_traffic import (
    HEADERS_BYTES,
    INDEX_OFFSET,
    SENDER_CPU,
    data_frame,
    open_port,
    set_faults,
)
from softroce_lab.bench.samples import MOST_ATTEMPTS
from softroce_lab.bench.stamps import Stamps
from softroce_lab.errors import RunError
from softroce_lab.fabric.daemons.wire import WireStage
from softroce_lab.fabric.lab import Lab
from softroce_lab.plan.effects import Delay, Fault, Queue
from softroce_lab.telemetry.stolen import StolenTime

Say: TypeAlias = Callable[[str], None]

PAYLOAD_BYTES = 1024  # of a frame of 1090 bytes
DELAY_NS = 1_000_000
DELAY_FRAMES_PER_SECOND = 50_000.0
_PIECES = 10  # of the frames: each is sent again when the hypervisor took even a tick of the CPUs
RATE_BPS = 200_000_000
DEEP_PACKETS = 1000  # of the queue before the rate: 40 ms, so that it does not run empty
LIMIT_PACKETS, ECN_PACKETS = 40, 20  # of the queue that a burst meets

_NUMBERS = 1 << 20
_STAMP_OFFSET = HEADERS_BYTES
_ETHERNET_BYTES, _TOS_OFFSET, _IP_CHECK_OFFSET, _IP_BYTES = 14, 15, 24, 20
_ECT0, _CE = 2, 3  # RFC 3168
_SLOWEST, _STEP, _FASTEST = 100_000.0, 1.1, 1_500_000.0  # frames a second that are tried
_FAILURES = 2  # one after the other: no faster pace is tried
_TRIES = 3  # at each of them: another program may have got in the way
_BURST_BPS, _BURST_FRAMES = 100_000, 64  # the burst is over before its first frame has left
_SETTLE_S = 0.2  # for the last frames, and before what is looked at


@dataclasses.dataclass(frozen=True, slots=True)
class Errors:
    """How far frames were from the requested delay, in nanoseconds."""

    p50: float
    p99: float
    p99_9: float
    most: float
    bias: float  # median with its sign: positive is late
    lost: int
    frames: int
    stolen: float  # share of the CPUs' time that the hypervisor gave to others


@dataclasses.dataclass(frozen=True, slots=True)
class Burst:
    """What a queue did to a burst."""

    most_waiting: int  # packets, as the stage counted them
    passed: int  # packets of the burst that got through
    marked_from: int | None  # packets that the first marked frame found waiting
    exact: bool  # every frame behind that one was marked


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """All that was measured."""

    frames_per_second: float
    undelayed_ns: float
    delay: Errors
    achieved_bps: float
    burst: Burst
    fifo: bool  # whether the stage ran under SCHED_FIFO

    def document(self) -> dict[str, Any]:
        """Part of what `--json` prints."""
        error = self.delay
        return {
            "wire_frames_per_second": round(self.frames_per_second),
            "delay_error_ns": {
                "p50": round(error.p50),
                "p99": round(error.p99),
                "p99_9": round(error.p99_9),
                "max": round(error.most),
                "bias": round(error.bias),
                "requested": DELAY_NS,
                "undelayed_median": round(self.undelayed_ns),
                "frames": error.frames,
                "lost": error.lost,
                "stolen": round(error.stolen, 4),
            },
            "rate": {
                "requested_bps": RATE_BPS,
                "achieved_bps": round(self.achieved_bps),
                "error": round(self.achieved_bps / RATE_BPS - 1, 5),
            },
            "wire_scheduling": "SCHED_FIFO" if self.fifo else "SCHED_OTHER",
            "queue": {
                "limit_packets": LIMIT_PACKETS,
                "most_waiting_packets": self.burst.most_waiting,
                "passed_packets": self.burst.passed,
                "burst_packets": _BURST_FRAMES,
                "ecn_packets": ECN_PACKETS,
                "marked_from_packets": self.burst.marked_from,
                "marks_exact": self.burst.exact,
            },
        }


def run(lab: Lab, directed: int, seconds: float, say: Say) -> Outcome:
    """Measure on a directed link of `lab` that leads from its first host to its last."""
    bench = _WireBench(lab, directed)
    with xdp_stamps.attached(lab, lab.plan.hosts[-1]):
        say("wire: delay")
        undelayed_ns, delay = bench.delay_errors(10 * seconds)
        say("wire: rate and queue")
        achieved_bps, burst = bench.achieved_bps(), bench.burst()
        say("wire: capacity")
        capacity = bench.capacity(seconds)
    with WireStage(lab.directory) as stage:
        fifo = bool(stage.figures().fifo)
    return Outcome(capacity, undelayed_ns, delay, achieved_bps, burst, fifo)


class _WireBench:
    def __init__(self, lab: Lab, directed: int) -> None:
        self._lab = lab
        self._directed = directed
        source, destination = lab.plan.hosts[0], lab.plan.hosts[-1]
        self._frame = with_ecn(data_frame(lab, source, destination, PAYLOAD_BYTES), _ECT0)
        xdp_stamps.load(lab.bpffs, _NUMBERS, INDEX_OFFSET, _STAMP_OFFSET)
        self._stamps = Stamps(lab.bpffs)
        self._source = source

    def delay_errors(self, seconds: float) -> tuple[float, Errors]:
        """The median without delay, and the errors with it."""
        count = min(int(seconds * DELAY_FRAMES_PER_SECOND / _PIECES), _NUMBERS)
        base_ns = float(np.median(self._piece(count)[1]))
        with self._armed(_delay()):
            pieces = [self._piece(count) for _ in range(_PIECES)]
        latencies = np.concatenate([taken for _, taken in pieces])
        signed = latencies - (base_ns + DELAY_NS)
        p50, p99, p99_9 = np.percentile(np.abs(signed), (50, 99, 99.9))
        return base_ns, Errors(
            p50=float(p50),
            p99=float(p99),
            p99_9=float(p99_9),
            most=float(np.abs(signed).max()),
            bias=float(np.median(signed)),
            lost=_PIECES * count - len(latencies),
            frames=_PIECES * count,
            stolen=float(np.mean([stolen for stolen, _ in pieces])),
        )

    def _piece(self, count: int) -> tuple[float, npt.NDArray[np.float64]]:
        """What was stolen meanwhile, and the latencies: the least disturbed of some tries."""
        tries: list[tuple[float, npt.NDArray[np.float64]]] = []
        while not tries or (tries[-1][0] > 0 and len(tries) < MOST_ATTEMPTS):
            stolen = StolenTime()
            latencies = _latencies(self._paced(count, DELAY_FRAMES_PER_SECOND))
            tries.append((stolen.share(), latencies))
        return min(tries, key=lambda each: each[0])

    def achieved_bps(self) -> float:
        """Over one second of arrivals, at a queue that is never empty."""
        fair = RATE_BPS / (8 * len(self._frame))
        with self._armed(_queue(RATE_BPS, DEEP_PACKETS)):
            stamps = self._paced(int(1.5 * fair * (1 + 2 * _SETTLE_S)), 1.5 * fair)
        arrived = np.sort(stamps["arrived_ns"][stamps["copies"] > 0])
        begin = np.searchsorted(arrived, arrived[0] + int(_SETTLE_S * 1e9))
        end = np.searchsorted(arrived, arrived[begin] + 1_000_000_000)
        if end == len(arrived):
            raise RunError("the frames over a link with a rate did not last for a second")
        return float((end - begin) * len(self._frame) * 8e9 / (arrived[end] - arrived[begin]))

    def burst(self) -> Burst:
        """At a queue so slow that the burst is over before anything has left."""
        leave_s = LIMIT_PACKETS * 8 * len(self._frame) / _BURST_BPS
        with self._armed(_queue(_BURST_BPS, LIMIT_PACKETS, ECN_PACKETS)):
            stamps = self._paced(_BURST_FRAMES, 1e9, settle_s=leave_s + _SETTLE_S)
            with WireStage(self._lab.directory) as stage:
                most_waiting = stage.link(self._directed).most_waiting_packets
        (arrived,) = np.nonzero(stamps["copies"])
        marks = (stamps["tos"][arrived] & 3) == _CE
        # Frame 0 is in transmission, so frame n finds n - 1 waiting.
        first = int(arrived[marks][0]) - 1 if marks.any() else None
        exact = first is not None and bool((marks == (arrived > first)).all())
        return Burst(most_waiting, len(arrived), first, exact)

    def capacity(self, seconds: float) -> float:
        """The fastest pace without loss, in frames a second; 0 if even the slowest loses some."""
        best, pace, failures = 0.0, _SLOWEST, 0
        with self._armed(_delay()):
            while pace <= _FASTEST and failures < _FAILURES:
                achieved = self._lossless(pace, int(pace * seconds))
                best = max(best, achieved)
                # Frames were lost, or the sender cannot send faster.
                failures = failures + 1 if achieved < pace / 1.02 else 0
                pace *= _STEP
        return best

    def _lossless(self, pace: float, count: int) -> float:
        """Frames a second that were sent when none was lost; 0: some are lost in every try."""
        for _ in range(_TRIES):
            stamps = self._paced(min(count, _NUMBERS), pace)
            if (stamps["copies"] == 1).all():
                return float((len(stamps) - 1) * 1e9 / np.ptp(stamps["sent_ns"]))
        return 0.0

    def _paced(
        self, count: int, frames_per_second: float, settle_s: float = _SETTLE_S
    ) -> npt.NDArray[np.void]:
        """The records of `count` frames. RunError if the kernel does not take them."""
        self._stamps.clear()
        port = open_port(self._lab, self._source)
        sent, _, _ = _native.paced_traffic(
            port,
            self._frame,
            index_offset=INDEX_OFFSET,
            stamp_offset=_STAMP_OFFSET,
            count=count,
            frames_per_second=frames_per_second,
            cpu=SENDER_CPU,
        )
        if sent != count:
            raise RunError(f"{self._source.name} could send {sent} of {count} frames only")
        time.sleep(settle_s)
        return self._stamps.taken(count)

    @contextmanager
    def _armed(self, *effects: Delay | Queue) -> Iterator[None]:
        """The link has these effects, and none afterwards."""
        set_faults(self._lab, (_fault(self._directed, n, each) for n, each in enumerate(effects)))
        try:
            yield
        finally:
            set_faults(self._lab)


def _fault(directed: int, number: int, effect: Delay | Queue) -> Fault:
    return Fault(f"bench-{number}", number, directed, "index", 1 + number, effect)


def _delay() -> Delay:
    return Delay(DELAY_NS, 0, "uniform", preserve=True)


def _queue(rate_bps: int, limit_packets: int, ecn_packets: int | None = None) -> Queue:
    return Queue(rate_bps, None, limit_packets, None, ecn_packets, trim=False)


def _latencies(stamps: npt.NDArray[np.void]) -> npt.NDArray[np.float64]:
    """Of the frames that arrived, in nanoseconds. RunError if none did."""
    arrived = stamps[stamps["copies"] > 0]
    if not len(arrived):
        raise RunError("no frame arrived")
    latencies: npt.NDArray[np.float64] = (arrived["arrived_ns"] - arrived["sent_ns"]).astype(float)
    return latencies


def with_ecn(frame: bytes, codepoint: int) -> bytes:
    """An Ethernet frame with another ECN field in its IPv4 header, whose checksum it mends."""
    mended = bytearray(frame)
    mended[_TOS_OFFSET] = mended[_TOS_OFFSET] & ~3 | codepoint
    mended[_IP_CHECK_OFFSET : _IP_CHECK_OFFSET + 2] = bytes(2)
    words = struct.unpack_from(f">{_IP_BYTES // 2}H", mended, _ETHERNET_BYTES)
    total = sum(words)
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into(">H", mended, _IP_CHECK_OFFSET, ~total & 0xFFFF)
    return bytes(mended)
