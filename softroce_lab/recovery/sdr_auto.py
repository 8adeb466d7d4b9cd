# SPDX-License-Identifier: GPL-2.0-or-later
"""Selective repeat or erasure coding, message by message, by SDR-RDMA's model.

All of it is this project's definition; the paper (arXiv 2505.05366) leaves the choice to the user.
The sender knows from the receiver's reports which share of its packets arrives, and the RTT. For a
size of messages it takes the code, or none, whose mean completion time the model puts lowest. It
looks again with every message, so it changes its mind while it runs: a loss that differs from what
was measured so far by more than chance makes it forget that.

A receiver knows the code of a message by its number of packets: k is the same for all codes, and
more parity has more packets. Immediates do not carry that number, so the framing is `ud`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from softroce_lab.model import sdr
from softroce_lab.model.sdr import Scenario
from softroce_lab.recovery.api import View
from softroce_lab.recovery.defaults import Timing
from softroce_lab.recovery.options import Option, Value
from softroce_lab.recovery.policy import NO_CODE, Action, Actions, Sending, UseCodes
from softroce_lab.recovery.sdr_ec import BETA, CHUNK, K, SdrEc

PARITY = (8, 1, 2, 4, 16, 32)
"""Chunks of parity that a submessage of 32 may have; the first one until losses are known."""

_LEAST_PACKETS = 1024  # that a measurement of the loss has
_PRIOR_LOST = 0.5  # packets: Jeffreys' prior of a Poisson rate
_JUMP, _JUMP_CHANCE = 100.0, 1 / 64  # losses over a WAN vary a thousandfold over days
_MOST_PACKETS = 1 << 21  # that are remembered
_DEVIATIONS = 4  # of a measurement from those before it, that chance does not explain
_PER_DECADE = 4  # losses, and RTTs, that are distinguished
_BITS = 33


@dataclasses.dataclass(slots=True)
class Measured:
    """What a sender knows of a peer: packets that had time to arrive, and those that did not."""

    echoed_before: int = 0
    reported_before: int = 0
    packets: float = 0
    lost: float = 0
    by_bits: list[int] = dataclasses.field(default_factory=lambda: [0] * _BITS)

    def add(self, echoed: int, reported: int) -> None:
        """The newest figures of its reports, modulo 2**32."""
        packets = (echoed - self.echoed_before) % (1 << 32)
        if packets < _LEAST_PACKETS:
            return
        arrived = (reported - self.reported_before) % (1 << 32)
        self.echoed_before, self.reported_before = echoed, reported
        lost = max(packets - arrived, 0)
        expected = self.lost / self.packets * packets if self.packets else lost
        if abs(lost - expected) > _DEVIATIONS * math.sqrt(max(expected, lost, 1)):
            self.packets = self.lost = 0  # that was another network
        self.packets += packets
        self.lost += lost
        if self.packets > _MOST_PACKETS:
            self.packets /= 2
            self.lost /= 2

    @property
    def loss(self) -> float | None:
        """The probability that a packet is lost, as far as so few tell; None: not known.

        The mean of what it may be after these packets: where none was lost, it is not 0.
        """
        return (self.lost + _PRIOR_LOST) / self.packets if self.packets else None


class SdrAuto(SdrEc):
    """`sdr_ec` with a code that follows the losses, and selective repeat without one."""

    name = "sdr_auto"
    framing = "ud"
    framings: ClassVar[tuple[str, ...]] = ("ud",)
    options: ClassVar[tuple[Option, ...]] = (CHUNK, BETA)

    def __init__(
        self, view: View, timing: Timing, options: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(view, timing, options)
        self._peers: dict[int, Measured] = {}
        self._used: dict[str, int] = {}

    @classmethod
    def check(cls, values: Mapping[str, Value]) -> None:
        """Any values go together."""

    @classmethod
    def codes(cls, values: Mapping[str, Value]) -> tuple[tuple[int, int], ...]:
        """(k, m) of all that it may use."""
        return tuple((K, parity) for parity in PARITY)

    def shape(self, packets: int, parity: int) -> tuple[int, int]:
        """By the packets of parity: the first code that makes as many, as the engine has it."""
        return next(
            (K, m) for m in PARITY if parity_packets(packets, self.chunk_packets, m) == parity
        )

    def on_feedback(self, send: Sending, now_ns: int) -> Actions:
        """Without parity it is `sdr_sr_nack`."""
        actions = super().on_feedback(send, now_ns)
        state = self.view.send_state(send.handle)
        if state is None or state.parity:
            return actions
        return self.repeat_overtaken(send, now_ns)

    # ---------------------------------------------------------------- sender: which code?

    def on_send_posted(self, send: Sending, now_ns: int) -> Actions:
        state = self.view.send_state(send.handle)
        if state is not None:
            code = self.shape(send.count, state.parity) if state.parity else None
            name = "none" if code is None else f"({code[0]}, {code[1]})"
            self._used[name] = self._used.get(name, 0) + 1
        return [*super().on_send_posted(send, now_ns), *self.choose(send)]

    def choose(self, send: Sending) -> list[Action]:
        """Another code for messages of this size that follow, if the losses call for it."""
        measured = self._peers.setdefault(send.peer, Measured())
        state = self.view.peer_state(send.peer)
        measured.add(state.echoed_packets, state.reported_packets)
        if measured.loss is None:
            return []
        # A message of a power of two bytes ends within its last packet, and is not of the next one.
        shortest = (send.count - 1) * self.view.chunk_bytes + 1
        choice = best(
            length=1 << (shortest - 1).bit_length(),
            loss=graded(sdr.chunk_loss(measured.loss, self.chunk_packets)),
            rtt_ns=graded(self.rtt_ns(send)[0]),
            rate_bps=self.view.line_rate_bps,
            chunk_bytes=self.chunk_packets * self.view.chunk_bytes,
            chunk_packets=self.chunk_packets,
            beta=float(self.values["beta"]),
        )
        length = send.count * self.view.chunk_bytes
        bits = range(shortest.bit_length(), length.bit_length() + 1)
        if all(measured.by_bits[each] == choice for each in bits):
            return []
        for each in bits:
            measured.by_bits[each] = choice
        return [UseCodes(send.peer, tuple(measured.by_bits))]

    def summary(self) -> dict[str, Any]:
        return {**super().summary(), "codes": dict(sorted(self._used.items()))}


def parity_packets(packets: int, chunk_packets: int, m: int) -> int:
    """Packets of parity behind so many of data (native/engine/striped/coding.hpp)."""
    chunks = -(-packets // chunk_packets)
    before = (chunks - 1) // K  # whole submessages before the last one
    last = chunks - before * K
    of_chunk = packets - (chunks - 1) * chunk_packets if last == 1 else chunk_packets
    return before * m * chunk_packets + -(-last * m // K) * of_chunk


def graded(value: float) -> float:
    """The nearest of some values a decade, so that few predictions are made; 0 stays 0."""
    if value <= 0:
        return 0.0
    return float(10 ** (round(math.log10(value) * _PER_DECADE) / _PER_DECADE))


@cache
def best(
    *,
    length: int,
    loss: float,
    rtt_ns: float,
    rate_bps: float,
    chunk_bytes: int,
    chunk_packets: int,
    beta: float,
) -> int:
    """The place in `PARITY` of the code with the least mean time for a message, or NO_CODE.

    Of selective repeat the mean is the model's, where packets of a chunk that arrive are kept. Of a
    code it is that of two outcomes: decoded, or what was missing arrives in one round after the
    NACK, which is later by (beta + 1) RTT. With probability `_JUMP_CHANCE` the loss is `_JUMP`
    times what was measured.
    """
    later = min(max(loss * _JUMP, sdr.LEAST_LOSS), sdr.MOST_LOSS)
    loss = min(loss, sdr.MOST_LOSS)
    if loss < sdr.LEAST_LOSS:
        return NO_CODE
    means = [0.0] * (len(PARITY) + 1)
    for chance, each in ((1 - _JUMP_CHANCE, loss), (_JUMP_CHANCE, later)):
        scenarios = [
            Scenario(length, each, rtt_ns, rate_bps, min(chunk_bytes, length), 0.0, beta, K, m)
            for m in PARITY
        ]
        kept = dataclasses.replace(scenarios[0], kept_packets=chunk_packets)
        times = [*map(_coded_mean_ns, scenarios), kept.repeated(0).mean_ns]
        means = [mean + chance * time for mean, time in zip(means, times, strict=True)]
    place = min(range(len(means)), key=means.__getitem__)
    return place if place < len(PARITY) else NO_CODE


def _coded_mean_ns(scenario: Scenario) -> float:
    sent_ns = (scenario.chunks + scenario.parity) * scenario.inject_ns
    later_ns = (scenario.beta + 1) * scenario.rtt_ns
    return sent_ns + scenario.rtt_ns + scenario.fallback("mds") * later_ns
