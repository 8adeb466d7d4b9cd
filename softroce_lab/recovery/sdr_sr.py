# SPDX-License-Identifier: GPL-2.0-or-later
"""SDR-RDMA's selective repeat (arXiv 2505.05366): a timer per chunk at the sender.

The paper states: the receiver's bitmap has a bit a chunk, N packets, 64 KiB by default;
the receiver sends (cumulative chunk, fragment of the bitmap); a chunk that is not acknowledged
RTO = RTT + alpha*RTT after it was sent is sent again. It evaluates "SR RTO" with 3 RTT (`sdr_sr`)
and "SR NACK" with 1 RTT (`sdr_sr_nack`).

This project's definition is the rest: how often the receiver sends SACKs (`sack_receiver`), that
no timer is shorter than T_min and each backs off without progress, and that "SR NACK" takes a
chunk for lost when a later one is there an RTT after it was sent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab.recovery.api import SendState, View, rotated
from softroce_lab.recovery.defaults import Timing
from softroce_lab.recovery.policy import (
    Action,
    Actions,
    RequestStatus,
    Retransmit,
    Sending,
    SetTimer,
)
from softroce_lab.recovery.sack_receiver import SackReceiver

CHUNK_BYTES = 64 << 10
_Bits = npt.NDArray[np.bool_]


@dataclasses.dataclass(slots=True)
class Chunks:
    """What the sender keeps of a message."""

    missing: _Bits  # not known to have arrived
    timeouts: int = 0  # a round trip apart and without progress; a chunk's first is none
    timeout_at_ns: int = 0  # the newest of them

    def count_timeout(self, now_ns: int, srtt_ns: int) -> None:
        """Another one, unless the newest is of the same round: chunks have timers of their own."""
        if self.timeouts == 0 or now_ns - self.timeout_at_ns >= srtt_ns:
            self.timeouts += 1
            self.timeout_at_ns = now_ns


class SdrSr(SackReceiver):
    """Selective repeat of chunks by timers: "SR RTO"."""

    name = "sdr_sr"
    framing = "uc_immediate"
    alpha = 2
    """RTO = RTT + alpha*RTT."""

    def __init__(
        self, view: View, timing: Timing, options: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(view, timing, options)
        self.chunk_packets: int = max(CHUNK_BYTES // view.chunk_bytes, 1)

    # ---------------------------------------------------------------- sender: what is missing?

    def on_send_posted(self, send: Sending, now_ns: int) -> Actions:
        chunks = -(-send.count // self.chunk_packets)
        send.memory = Chunks(np.ones(chunks, np.bool_))
        return [SetTimer(send, now_ns + self.rto_ns(send))]

    def on_feedback(self, send: Sending, now_ns: int) -> Actions:
        memory, known = send.memory, send.known_missing
        if known is not None:
            before = np.count_nonzero(memory.missing)
            memory.missing[: known.base] = False
            memory.missing[known.base : known.base + len(known.bits)] &= known.bits
            if np.count_nonzero(memory.missing) < before:
                memory.timeouts = 0
        return ()

    def outstanding(self, send: Sending, state: SendState) -> tuple[_Bits, npt.NDArray[np.int64]]:
        """Which chunks were sent and are missing, and when each one's last packet was sent."""
        starts = np.arange(0, state.count, self.chunk_packets)
        sent = np.minimum(starts + self.chunk_packets, state.count) <= state.sent
        return sent & send.memory.missing, np.maximum.reduceat(state.sent_ns, starts)

    # ---------------------------------------------------------------- sender: times out

    def rto_ns(self, send: Sending) -> int:
        """RTT + alpha*RTT, at least T_min; doubling, to T_max, when it brings nothing."""
        srtt_ns, _ = self.rtt_ns(send)
        timing = self.timing
        rto_ns = timing.fixed_rto_ns or max(srtt_ns + self.alpha * srtt_ns, timing.t_min_ns)
        rto_ns = self.no_shorter_than_measured_ns(send, rto_ns)
        return timing.backed_off_ns(rto_ns, send.memory.timeouts)

    def on_send_timer(self, send: Sending, now_ns: int) -> Actions:
        state = self.view.send_state(send.handle)
        if state is None:
            return ()
        missing, sent_ns = self.outstanding(send, state)
        if not missing.any():  # the acknowledgement was lost, or all is still queued
            send.memory.timeouts += 1
            return [SetTimer(send, now_ns + self.rto_ns(send)), RequestStatus(send)]
        due = missing & (sent_ns <= now_ns - self.rto_ns(send))
        waiting = sent_ns[missing & ~due]
        repeat = [] if state.retransmit_pending else self.repeat(send, state, due, now_ns)
        rto_ns = self.rto_ns(send)  # another one, if that was without progress
        at_ns = (int(waiting.min()) if waiting.size else now_ns) + rto_ns
        return [SetTimer(send, at_ns), *repeat]

    def repeat(self, send: Sending, state: SendState, chunks: _Bits, now_ns: int) -> list[Action]:
        """Retransmit all packets of these chunks."""
        packets = np.flatnonzero(np.repeat(chunks, self.chunk_packets)[: state.count])
        if not packets.size:
            return []
        attempts = int(state.attempts[packets].max())
        if attempts > 1:
            send.memory.count_timeout(now_ns, self.rtt_ns(send)[0])
        return [Retransmit(send, rotated(packets.astype(np.uint32), attempts - 1))]

    def repeat_overtaken(self, send: Sending, now_ns: int) -> list[Action]:
        """Retransmit what is missed before a chunk that is there, an RTT after it was sent."""
        state = self.view.send_state(send.handle)
        there = np.flatnonzero(~send.memory.missing)
        if state is None or not there.size or state.retransmit_pending:
            return []
        missing, sent_ns = self.outstanding(send, state)
        missing[there[-1] :] = False
        lost = missing & (sent_ns <= now_ns - self.rtt_ns(send)[0])
        return self.repeat(send, state, lost, now_ns)


class SdrSrNack(SdrSr):
    """A chunk that is missed before one that is there is sent again after an RTT: "SR NACK"."""

    name = "sdr_sr_nack"

    def on_feedback(self, send: Sending, now_ns: int) -> Actions:
        super().on_feedback(send, now_ns)
        return self.repeat_overtaken(send, now_ns)
