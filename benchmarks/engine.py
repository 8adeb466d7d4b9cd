# SPDX-License-Identifier: GPL-2.0-or-later
"""Packets of striped messages between two RNICs in memory, on one core, and a bare loop.

The bare loop copies a payload into a frame, writes its CRC, checks it and copies the payload out;
`pair_over_bare` depends less on the machine than the rates do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.memory import ADDRESSES, config
from softroce_lab import _native
from softroce_lab.errors import RunError
from softroce_lab.transports.api import NEVER_NS
from softroce_lab.verbs import MR, PD, Context, MessageEndpoint, Peer
from softroce_lab.verbs.enums import IBV_ACCESS_LOCAL_WRITE

MESSAGE_BYTES = 1 << 20
MESSAGES = 4  # at once; their memory is used again and again
QKEY = 0x0BE7C4


class _Side:
    """One of the two RNICs, with memory."""

    def __init__(self, endpoint: Any, memory: Any) -> None:
        self.endpoint = endpoint
        pd = PD(Context(endpoint))
        self._memory = MR(pd, memory, IBV_ACCESS_LOCAL_WRITE)
        self.messages = MessageEndpoint(pd, QKEY)

    def post(self, is_send: bool, step: int, peer: Peer, message: int) -> None:
        post = self.messages.post_send if is_send else self.messages.post_recv
        offset = message * MESSAGE_BYTES
        post(0, step, peer, MESSAGE_BYTES, self._memory, offset, message=message)

    def complete_sends(self) -> None:
        """What a transport does when nothing was lost."""
        for event in self.endpoint.take_events():
            if event.kind == _native.EventKind.SENT:
                self.endpoint.complete_send(event.handle, 0)


class Rig:
    """Two RNICs on a perfect cable."""

    def __init__(self) -> None:
        self.pair = _native.Pair(*(config(address, path_mtu=2048) for address in ADDRESSES), 1)
        size = MESSAGES * MESSAGE_BYTES
        self._source = np.random.default_rng(1).integers(0, 256, size, np.uint8)
        self._target = np.zeros(size, np.uint8)
        self._sender = _Side(self.pair.side(0), self._source)
        self._receiver = _Side(self.pair.side(1), self._target)
        to, back = self._receiver.messages.qpns, self._sender.messages.qpns
        self._to_receiver = self._sender.messages.connect(ADDRESSES[1], 0, to, QKEY)
        self._to_sender = self._receiver.messages.connect(ADDRESSES[0], 0, back, QKEY)
        self._step = 0

    def move(self) -> int:
        """Send all messages once; returns the number of packets. RunError."""
        self._step = (self._step + 1) % (1 << 16)
        for message in range(MESSAGES):
            self._receiver.post(False, self._step, self._to_sender, message)
            self._sender.post(True, self._step, self._to_receiver, message)
        packets, left = 0, MESSAGES
        while left:
            if not self.pair.run(NEVER_NS):
                raise RunError("the two RNICs stand still")
            self._sender.complete_sends()
            self._sender.messages.poll(left)
            self._receiver.complete_sends()
            count, completions = self._receiver.messages.poll(left)
            left -= count
            packets += sum(each.packets for each in completions)
        return packets

    def move_bare(self) -> int:
        """The same bytes with the bare loop."""
        source, target = self._source.ctypes.data, self._target.ctypes.data
        chunk = self._sender.endpoint.chunk_bytes
        places = range(0, MESSAGES * MESSAGE_BYTES, MESSAGE_BYTES)
        return sum(
            _native.bare_loop(source + at, target + at, MESSAGE_BYTES, chunk) for at in places
        )

    def check(self) -> None:
        """RunError if what arrived is not what was sent."""
        if not np.array_equal(self._source, self._target):
            raise RunError("what arrived is not what was sent")
        self._target.fill(0)


def measure(short: bool) -> dict[str, float]:
    """Packets a second of CPU."""
    rig, turns = Rig(), 1 if short else 256
    rates = {}
    for name, move in (("bare", rig.move_bare), ("pair", rig.move)):
        _rate(move, 1)  # warm
        rates[name] = _rate(move, turns)
        rig.check()
    return {
        "pair_packets_per_cpu_s": rates["pair"],
        "bare_packets_per_cpu_s": rates["bare"],
        "pair_over_bare": rates["pair"] / rates["bare"],
    }


def _rate(move: Callable[[], int], turns: int) -> float:
    began = time.thread_time_ns()
    packets = sum(move() for _ in range(turns))
    return packets * 1e9 / (time.thread_time_ns() - began)
