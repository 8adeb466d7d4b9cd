# SPDX-License-Identifier: GPL-2.0-or-later
"""Two RNICs on the in-memory pair, a transport on each, and memory of which every byte is checked.

Side 0 and side 1 each own an arena of bytes: what is sent, what is received, and guard zones
between them, all filled with noise. `check` compares the whole arena with what it must hold.
"""

from __future__ import annotations

import dataclasses
import random

import numpy as np

from softroce_lab import _native
from softroce_lab.errors import ibv_wc_status
from softroce_lab.transports import registry
from softroce_lab.transports.api import NEVER_NS
from softroce_lab.transports.defaults import DEFAULT_TIMING, Timing
from softroce_lab.transports.policy import MessagePolicy
from softroce_lab.transports.runner import PolicyRunner

QKEY = 0x1D2B3A49
ADDRESSES = (0x0A000001, 0x0A000002)
V6_ADDRESSES = (0xFD536C61_62000000_00000000_0A000001, 0xFD536C61_62000000_00000000_0A000002)
MACS = (0x020000000001, 0x020000000002)
GUARD_BYTES = 64
MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000
IBV_ACCESS_LOCAL_WRITE = 1
DATA, CONTROL, REPORT, PROBE, PARITY = range(5)
UNCODED = {"codes": []}
"""Settings with which `sdr_ec` has no parity: what is lost is retransmitted, as by all others."""
_NOISE = np.random.default_rng(1).integers(0, 256, 1 << 20, dtype=np.uint8)


def threshold(probability: float) -> int:
    return min(int(probability * 2**64), 2**64 - 1)


def noise(seed: int, length: int) -> np.ndarray:
    """Bytes that look random, cheaply: a window into a fixed random array, repeated."""
    start = seed * 4099 % 65537
    window = _NOISE[start : start + min(length, len(_NOISE) - start)]
    return np.resize(window, length) if length else np.zeros(0, np.uint8)


def config(address: int, **settings) -> _native.MessageConfig:
    made = _native.MessageConfig()
    made.address = address
    for name, value in settings.items():
        setattr(made, name, value)
    return made


@dataclasses.dataclass(frozen=True)
class Posted:
    """A work request of the rig's: what it names in the arena of its side."""

    wr_id: int
    key: tuple[int, int, int]
    offset: int
    length: int


class Side:
    """One end of the pair: endpoint, arena, completions; a runner if the transport is a policy."""

    def __init__(self, endpoint, runner: PolicyRunner | None, arena_bytes: int) -> None:
        self.endpoint = endpoint
        self.runner = runner
        self.arena = noise(7, arena_bytes)
        self.expected = self.arena.copy()
        self._free = GUARD_BYTES
        self.memory_key = endpoint.register_memory(
            self.arena.ctypes.data, arena_bytes, IBV_ACCESS_LOCAL_WRITE
        )
        self.peer = 0
        self.completions: list[_native.WorkCompletion] = []
        self.posted: list[Posted] = []

    def allocate(self, length: int) -> int:
        """The offset of `length` bytes that nothing else touches, between guard zones."""
        offset = self._free
        self._free += length + GUARD_BYTES
        assert self._free <= len(self.arena), "the rig's arena is too small"
        return offset

    def _post(self, verb, key, length: int) -> Posted:
        posted = Posted(len(self.posted), key, self.allocate(length), length)
        self.posted.append(posted)
        verb(self.peer, key, self.memory_key, posted.offset, length, posted.wr_id)
        return posted

    def send(self, key, data: np.ndarray, **more) -> Posted:
        posted = Posted(len(self.posted), key, self.allocate(len(data)), len(data))
        self.posted.append(posted)
        for bytes_ in (self.arena, self.expected):
            bytes_[posted.offset : posted.offset + len(data)] = data
        self.endpoint.post_send(
            self.peer, key, self.memory_key, posted.offset, len(data), posted.wr_id, **more
        )
        return posted

    def receive(self, key, length: int) -> Posted:
        return self._post(self.endpoint.post_receive, key, length)

    def expect(self, receive: Posted, data: np.ndarray) -> None:
        """`data` is to arrive in this receive."""
        self.expected[receive.offset : receive.offset + len(data)] = data

    def step(self) -> None:
        if self.runner is not None:
            self.runner.step()
        self.completions += self.endpoint.poll_completions(1024)

    def statuses(self) -> list[ibv_wc_status]:
        return [ibv_wc_status(each.status) for each in self.completions]

    @property
    def policy(self) -> MessagePolicy:
        assert self.runner is not None
        return self.runner.policy

    def figures(self) -> dict:
        """What the transport counted."""
        return self.endpoint.figures() if self.runner is None else self.runner.summary()

    def keys_under_way(self) -> list[tuple[int, int, int]]:
        """Of what is posted and has not completed."""
        over = {each.wr_id for each in self.completions}
        return [each.key for each in self.posted if each.wr_id not in over]

    @property
    def outstanding(self) -> int:
        return len(self.posted) - len(self.completions)


class PairRig:
    """The pair with its two sides, connected."""

    def __init__(
        self,
        transport: str | type[MessagePolicy] | None,
        *,
        seed: int = 1,
        addresses: tuple[int, int] = ADDRESSES,
        timing: Timing = DEFAULT_TIMING,
        arena_bytes: int = 1 << 22,
        options: dict | None = None,
        **settings,
    ) -> None:
        """`transport`: its name, or a policy; None: events and acts are in the test's hand."""
        options = options or {}
        self.timing = timing
        entry = None
        if transport is not None:
            named = isinstance(transport, str)
            entry = registry.find(transport) if named else registry.Entry.of(transport)
            coding = entry.coding(options, settings.get("path_mtu", 2048))
            settings = entry.engine(options) | coding | settings
        configs = [config(address, **settings) for address in addresses]
        for each in configs:
            timing.apply(each)
        self.random = random.Random(seed)
        self.pair = _native.Pair(*configs, seed)
        self.sides = [
            Side(endpoint, entry and entry.runner(endpoint, timing, options), arena_bytes)
            for endpoint in (self.pair.side(0), self.pair.side(1))
        ]
        self.cables = [self.pair.cable(0), self.pair.cable(1)]
        self.steps = 0
        for here, there in ((0, 1), (1, 0)):
            endpoint, other = self.sides[here].endpoint, self.sides[there].endpoint
            endpoint.set_qkey(QKEY)
            self.sides[here].peer = endpoint.connect(
                addresses[there], MACS[there], other.data_qp, other.recovery_qp, QKEY
            )

    @property
    def now_ns(self) -> int:
        return self.pair.now_ns

    def transfer(
        self, key, length: int, *, sender: int = 0, capacity: int | None = None, **more
    ) -> Posted:
        """Post a receive and its send; returns the send."""
        data = noise(hash((key, sender)), length)
        receiver = self.sides[1 - sender]
        receive = receiver.receive(key, length if capacity is None else capacity)
        receiver.expect(receive, data)
        return self.sides[sender].send(key, data, **more)

    def step(self, until_ns: int, *, most_steps: int = 200_000) -> bool:
        """Let what waits be handled, then let time go on until something happens; whether it did.

        Raises AssertionError when there were more steps than that since the beginning.
        """
        for side in self.sides:
            side.step()
        happened = self.pair.run(until_ns)
        for side in self.sides:
            side.step()
        self.steps += 1
        assert self.steps <= most_steps, f"no end in sight after {most_steps} steps"
        return happened

    def step_until(self, until_ns: int, done=lambda: False, *, most_steps: int = 200_000) -> bool:
        """Run until `done()`, or until that time; whether it is done."""
        while not done():
            if not self.step(until_ns, most_steps=most_steps):
                return done()
        return True

    def finish(self, within_ns: int = 20 * SECOND_NS, *, most_steps: int = 200_000) -> None:
        """Run until every work request has completed."""

        def done() -> bool:
            return not any(side.outstanding for side in self.sides)

        limit_ns = self.now_ns + within_ns
        assert self.step_until(limit_ns, done, most_steps=most_steps), (
            f"unfinished at {self.now_ns / 1e6} ms: {[side.outstanding for side in self.sides]}"
        )

    def quiesce(self) -> None:
        """With no work outstanding all falls silent, within a few timers."""
        end_ns = self.now_ns + 10 * SECOND_NS
        self.step_until(NEVER_NS, lambda: self.now_ns > end_ns)
        assert self.now_ns <= end_ns, "timers keep running though no work is outstanding"

    def check(self) -> None:
        """Right bytes, nothing else touched, every completion once and successful."""
        for which, side in enumerate(self.sides):
            wr_ids = sorted(each.wr_id for each in side.completions)
            assert wr_ids == [each.wr_id for each in side.posted], f"completions of side {which}"
            bad = [status.name for status in side.statuses() if status]
            assert not bad, f"side {which}: {bad}"
            if not np.array_equal(side.arena, side.expected):
                wrong = np.flatnonzero(side.arena != side.expected)
                raise AssertionError(f"side {which}: {wrong.size} bytes wrong, first {wrong[0]}")

    def counters(self, side: int) -> dict[str, int]:
        return self.sides[side].endpoint.counters()

    def packets(self) -> int:
        return sum(self.pair.totals(which)["sent"] for which in (0, 1))
