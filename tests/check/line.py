# SPDX-License-Identifier: GPL-2.0-or-later
"""Two of the lab's RNICs on a line with a router in the middle: what is captured where.

    h1 --- s1 --- h2

Packets get lost on each half, in both directions, by a seed. What the taps see at h1, at s1 and at
h2 becomes a Tape each; `everywhere` has one interface a directed link, as captures of the lab do.
"""

import heapq
import itertools
import random

from softroce_lab import _native
from tests.check.plant import Frame, Tape
from tests.native.connected import (
    ADDRESSES,
    ALL_ACCESS,
    FETCH_ADD,
    READ,
    SEND,
    WRITE,
    WRITE_IMM,
    Side,
)

STEP_NS = 20_000
HOP_NS = 5_000
LINKS = ("h1->s1", "s1->h2", "h2->s1", "s1->h1")
_MEMORY_BYTES = 1 << 20


class Line:
    """Two connected queue pairs; `run` moves frames until nothing more happens."""

    def __init__(self, kind=2, *, loss=0.0, seed=1, path_mtu=256, **retries):
        self.random = random.Random(seed)
        self.loss = loss
        self.now_ns = 0
        self.flying = []
        self.sequence = itertools.count()
        self.at = {place: Tape() for place in ("h1", "s1", "h2")}
        self.everywhere = Tape(interfaces=LINKS)
        configs = []
        for address in ADDRESSES:
            config = _native.MessageConfig()
            config.address, config.path_mtu = address, 4096
            configs.append(config)
        self.ends = [_native.FrameEndpoint(config, mac) for mac, config in enumerate(configs, 2)]
        self.sides = [
            Side(end, kind, _MEMORY_BYTES, ALL_ACCESS, (256, 256, 4, 4, 256)) for end in self.ends
        ]
        psns = [0xFFFFF0, 0x500000]
        for which, side in enumerate(self.sides):
            other = 1 - which
            side.connect(self.sides[other], psns[which], psns[other], path_mtu,
                         **{"timeout": 7} | retries)  # fmt: skip

    def run(self, for_ns=2_000_000_000):
        """Till both are silent for a tenth of the time, or the time is over."""
        until, silent = self.now_ns + for_ns, 0
        while self.now_ns < until and silent < for_ns // 10:
            moved = self._move()
            silent = 0 if moved or self.flying else silent + STEP_NS
            self.now_ns += STEP_NS
        for side in self.sides:
            side.poll()

    def _move(self):
        moved = False
        for which, end in enumerate(self.ends):
            for _ in range(8):
                frame = end.poll_frame(self.now_ns)
                if frame is None:
                    break
                moved = True
                self._send(which, frame)
            end.handle_timeout(self.now_ns)
        while self.flying and self.flying[0][0] <= self.now_ns:
            when, _, which, frame = heapq.heappop(self.flying)
            self.ends[1 - which].handle_frame(frame, when)
        return moved

    def _send(self, which, frame):
        """From h1, or from h2, to the other one; what is lost behind a tap is seen there."""
        here, there = ("h1", "h2") if which == 0 else ("h2", "h1")
        when = self.now_ns
        self._see(here, 2 * which, when, frame)
        if self.random.random() < self.loss:
            return
        routed = _routed(frame)
        self._see("s1", 2 * which + 1, when + HOP_NS, routed)
        if self.random.random() < self.loss:
            self.everywhere.frames[-1].comment = "dropped: loss 1%, rule some-loss"
            return
        self._see(there, None, when + 2 * HOP_NS, routed)
        heapq.heappush(self.flying, (when + 2 * HOP_NS, next(self.sequence), which, routed))

    def _see(self, place, link, when, frame):
        # The taps' clock begins when the others' do: in this century.
        seen = Frame(1_700_000_000_000_000_000 + when, frame)
        self.at[place].frames.append(seen)
        if link is not None:
            self.everywhere.frames.append(Frame(seen.time_ns, frame, link))

    def tapes(self):
        """By place, in the order of time."""
        for tape in (*self.at.values(), self.everywhere):
            tape.frames.sort(key=lambda frame: frame.time_ns)
        return self.at | {"everywhere": self.everywhere}


def _routed(frame):
    """Behind a router."""
    fields = dict(_native.decode_frame(frame))
    return bytes(_native.encode_frame(fields | {"ip.ttl": fields["ip.ttl"] - 1}))


def talk(line, count=24, size=1100):
    """Every operation of RC, from h1 to h2, a part of them at the same time from h2 to h1."""
    for one, other in (line.sides, line.sides[::-1]):
        for number in range(count):
            opcode = (SEND, WRITE, READ, WRITE_IMM, FETCH_ADD)[number % 5]
            if opcode in (SEND, WRITE_IMM):
                other.post_receive((number * 2048, 2048))
            length = 8 if opcode == FETCH_ADD else size
            one.post_send(
                opcode,
                (number * 2048, length),
                remote_addr=other.address + number * 2048,
                rkey=other.key,
            )
    line.run()
    assert all(len(side.poll()) for side in line.sides)
    return line.tapes()
