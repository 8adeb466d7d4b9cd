# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench engine`: packets a second of two RNICs in memory, beside a bare loop.

    bare    copy a payload into a frame, write its CRC, check it, copy the payload out; nothing else
    pair    striped messages from one RNIC to the other: the same copies, ICRCs over the same
            bytes, and everything that an RNIC does around them

Both move the same buffers in the same packets on one core, turn by turn, so that a machine that is
slow for a while is slow for both. Time is the core's time that this thread got: what other
programs take is not counted.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab import _native
from softroce_lab.errors import RunError, UserError
from softroce_lab.recovery.api import NEVER_NS
from softroce_lab.rnic import MR, PD, Context, MessageEndpoint, Peer
from softroce_lab.rnic.enums import IBV_ACCESS_LOCAL_WRITE
from softroce_lab.statistics import Interval, median_interval
from softroce_lab.telemetry.rundir import SCHEMA_VERSION, environment

MESSAGE_BYTES = 1 << 20
WORKING_SET_BYTES = 4 << 20
"""Messages use this much memory at either side, again and again."""

PATH_MTU_BYTES = 2048
"""Data and our header of a packet; its frame has 66 bytes more."""

_ADDRESSES = (0x0A000001, 0x0A000002)
_QKEY = 0x0BE7C4


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the user may choose."""

    rounds: int = 21
    size_bytes: int = 256 << 20  # that either moves in a round, rounded up to the working set
    cpu: int | None = None  # None: the last one that this process may use


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Packets a second, a value a round."""

    bare: list[float]
    pair: list[float]
    cpu: int

    @property
    def ratio(self) -> Interval:
        """Pair over bare, each within its round."""
        return median_interval([p / b for p, b in zip(self.pair, self.bare, strict=True)])

    def intervals(self) -> dict[str, Interval]:
        """Packets a second of both."""
        return {"bare": median_interval(self.bare), "pair": median_interval(self.pair)}

    def document(self) -> dict[str, Any]:
        """All of it, as `--json` prints it."""
        rates, ratio = self.intervals(), self.ratio
        return {
            "schema_version": SCHEMA_VERSION,
            **{f"{name}_packets_per_second": round(rate.median) for name, rate in rates.items()},
            "ratio": round(ratio.median, 4),
            "interval_95": {
                name: [each.low, each.high] for name, each in (rates | {"ratio": ratio}).items()
            },
            "rounds": len(self.bare),
            "path_mtu_bytes": PATH_MTU_BYTES,
            "message_bytes": MESSAGE_BYTES,
            "working_set_bytes": 2 * WORKING_SET_BYTES,
            "cpu": self.cpu,
            "environment": environment(),
        }


class Side:
    """One of the two RNICs, with all that it needs to move messages."""

    def __init__(self, endpoint: Any, memory: npt.NDArray[np.uint8]) -> None:
        self.endpoint = endpoint
        pd = PD(Context(endpoint))
        self._memory = MR(pd, memory, IBV_ACCESS_LOCAL_WRITE)
        self.messages = MessageEndpoint(pd, _QKEY)

    def connect(self, other: Side, address: int) -> Peer:
        """Make the other side this one's peer."""
        return self.messages.connect(address, 0, other.messages.qpns, _QKEY)

    def post(self, is_send: bool, step: int, peer: Peer, message: int) -> None:
        """Post one of a step's messages."""
        post = self.messages.post_send if is_send else self.messages.post_recv
        offset = message * MESSAGE_BYTES
        post(0, step, peer, MESSAGE_BYTES, self._memory, offset, message=message)

    def finish_sends(self) -> None:
        """What a recovery policy does of a message that nothing was lost of: complete it."""
        for event in self.endpoint.take_events():
            if event.kind == _native.EventKind.SENT:
                self.endpoint.complete_send(event.handle, 0)


class Rig:
    """Two RNICs on a perfect cable, and the memory that all packets come from and go to."""

    def __init__(self) -> None:
        self._pair = _native.Pair(*(_config(address) for address in _ADDRESSES), 1)
        self._source = np.random.default_rng(1).integers(0, 256, WORKING_SET_BYTES, np.uint8)
        self._target = np.zeros(WORKING_SET_BYTES, np.uint8)
        self._sender = Side(self._pair.side(0), self._source)
        self._receiver = Side(self._pair.side(1), self._target)
        self._to_receiver = self._sender.connect(self._receiver, _ADDRESSES[1])
        self._to_sender = self._receiver.connect(self._sender, _ADDRESSES[0])
        self._step = 0

    def move(self) -> int:
        """Send the working set once, message by message; returns the number of packets."""
        self._step = (self._step + 1) % (1 << 16)
        messages = WORKING_SET_BYTES // MESSAGE_BYTES
        for message in range(messages):
            self._receiver.post(False, self._step, self._to_sender, message)
            self._sender.post(True, self._step, self._to_receiver, message)
        packets = 0
        while messages:
            if not self._pair.run(NEVER_NS):
                raise RunError("the two RNICs stand still")
            self._sender.finish_sends()
            self._sender.messages.poll(messages)
            self._receiver.finish_sends()
            count, completions = self._receiver.messages.poll(messages)
            messages -= count
            packets += sum(each.packets for each in completions)
        return packets

    def move_bare(self) -> int:
        """The same with the bare loop."""
        source, target = self._source.ctypes.data, self._target.ctypes.data
        chunk = self._sender.endpoint.chunk_bytes
        return sum(
            _native.bare_loop(source + at, target + at, MESSAGE_BYTES, chunk)
            for at in range(0, WORKING_SET_BYTES, MESSAGE_BYTES)
        )

    def check(self) -> None:
        """Whether what was moved has arrived."""
        if not np.array_equal(self._source, self._target):
            raise RunError("what arrived is not what was sent")
        self._target.fill(0)


def run(options: Options, progress: Callable[[int], None] = lambda _: None) -> Outcome:
    """Measure; `progress` gets the number of rounds done."""
    before = os.sched_getaffinity(0)
    cpu = max(before) if options.cpu is None else options.cpu
    if cpu not in before:
        raise UserError(f"this process may not use CPU {cpu}", hint=f"it may use {sorted(before)}")
    os.sched_setaffinity(0, {cpu})
    try:
        bare, pair = _measure(Rig(), options, progress)
    finally:
        os.sched_setaffinity(0, before)
    return Outcome(bare, pair, cpu)


def _measure(
    rig: Rig, options: Options, progress: Callable[[int], None]
) -> tuple[list[float], list[float]]:
    bare: list[float] = []
    pair: list[float] = []
    turns = max(1, -(-options.size_bytes // WORKING_SET_BYTES))
    both = ((rig.move_bare, bare), (rig.move, pair))
    for move, _ in both:
        _packets_per_second(move, turns)  # warm
        rig.check()
    for done in range(options.rounds):
        for move, values in both if done % 2 else reversed(both):
            values.append(_packets_per_second(move, turns))
            rig.check()
        progress(done + 1)
    return bare, pair


def _packets_per_second(move: Callable[[], int], turns: int) -> float:
    began = time.thread_time_ns()
    packets = sum(move() for _ in range(turns))
    return packets * 1e9 / (time.thread_time_ns() - began)


def _config(address: int) -> Any:
    config = _native.MessageConfig()
    config.address = address
    config.path_mtu = PATH_MTU_BYTES
    return config
