# SPDX-License-Identifier: GPL-2.0-or-later
"""SDR-RDMA's selective repeat (arXiv 2505.05366): a timer per chunk at the sender.

The paper states: the receiver's bitmap has a bit a chunk, N packets, 64 KiB by default;
the receiver sends (cumulative chunk, fragment of the bitmap); a chunk that is not acknowledged
RTO = RTT + alpha*RTT after it was sent is sent again. It evaluates "SR RTO" with 3 RTT (`sdr_sr`)
and "SR NACK" with 1 RTT (`sdr_sr_nack`).

This project's definition is the rest: how often the receiver sends SACKs (`sack`), that no timer is
shorter than T_min and each backs off without progress, that "SR NACK" takes a chunk for lost when
a later one is there an RTT after it was sent, and all of `datagram`: acknowledgements of whole
messages, keepalives, bounds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from softroce_lab.recovery import control
from softroce_lab.recovery.api import (
    Action,
    Actions,
    Event,
    ReceiveState,
    Retransmit,
    SendState,
    SetTimer,
    missing_chunks,
    missing_packets,
    rotated,
)
from softroce_lab.recovery.control import Chunks, Sack
from softroce_lab.recovery.sack_policy import SackPolicy
from softroce_lab.recovery.work import PeerWork, Receiving, Sending

CHUNK_BYTES = 64 << 10
_Bits = npt.NDArray[np.bool_]


class SdrSr(SackPolicy):
    """Selective repeat of chunks by timers: "SR RTO"."""

    name = "sdr_sr"
    framing = "uc_immediate"
    sack_type = Chunks
    alpha = 2
    """RTO = RTT + alpha*RTT."""

    @property
    def chunk_packets(self) -> int:
        """N: packets of a chunk."""
        return max(CHUNK_BYTES // self.view.chunk_bytes, 1)

    def sack(  # noqa: D102
        self, receive: Receiving, id_: int, state: ReceiveState | None
    ) -> control.Message:
        if state is None:
            return Chunks(id_, receive.key, self.chunk_packets, None)
        missing = missing_chunks(missing_packets(state), self.chunk_packets)
        cumulative = int(missing.argmax())  # there is one, or the message were over
        rest = control.PacketSet(cumulative, missing[cumulative:])
        return Chunks(id_, receive.key, self.chunk_packets, rest)

    # ---------------------------------------------------------------- sender: times out

    def rto_ns(self, work: PeerWork, send: Sending) -> int:
        """RTT + alpha*RTT, at least T_min; doubling, to T_max, when it brings nothing."""
        srtt, _ = self.rtt_ns(work.index)
        rto_ns = self.timing.fixed_rto_ns or max(srtt + self.alpha * srtt, self.timing.t_min_ns)
        return self.backed_off(rto_ns, send.timeouts_without_progress)

    def on_send_posted(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        yield from super().on_send_posted(event, now_ns)
        work = self.work_with(event.peer)
        yield SetTimer(event.handle, now_ns + self.rto_ns(work, work.sends[event.id]))

    def on_timeout(  # noqa: D102
        self, work: PeerWork, send: Sending, state: SendState, now_ns: int
    ) -> Iterator[Action]:
        missing, sent_ns = self._outstanding(send, state)
        if state.paused or not missing.any():
            # there is nothing to send again: what is missed is a word
            send.timeouts_without_progress += 1
            yield SetTimer(send.handle, now_ns + self.rto_ns(work, send))
            yield self.probe_receiver(send)
            return
        due = missing & (sent_ns <= now_ns - self.rto_ns(work, send))
        waiting = sent_ns[missing & ~due]
        repeat = [] if state.retransmit_pending else self._repeat(work, send, state, due, now_ns)
        rto_ns = self.rto_ns(work, send)  # another one, if that was without progress
        yield SetTimer(send.handle, (int(waiting.min()) if waiting.size else now_ns) + rto_ns)
        yield from repeat

    def _outstanding(self, send: Sending, state: SendState) -> tuple[_Bits, npt.NDArray[np.int64]]:
        """Which chunks were sent and are missed, and when the last packet of each was sent."""
        starts = np.arange(0, state.count, self.chunk_packets)
        sent = np.minimum(starts + self.chunk_packets, state.count) <= state.sent
        known = send.missing_chunks
        return sent if known is None else sent & known, np.maximum.reduceat(state.sent_ns, starts)

    def _repeat(
        self, work: PeerWork, send: Sending, state: SendState, chunks: _Bits, now_ns: int
    ) -> list[Action]:
        packets = np.flatnonzero(np.repeat(chunks, self.chunk_packets)[: state.count])
        if not packets.size:
            return []
        attempts = int(state.attempts[packets].max())
        action = Retransmit(send.handle, rotated(packets.astype(np.uint32), attempts - 1))
        if attempts > 1:  # many chunks lost once, each with its timer, bring something
            send.note_timeout_without_progress(now_ns, self.rtt_ns(work.index)[0])
        return list(self.retransmit(work, send, action, attempts, now_ns))

    def learn(self, send: Sending, message: Sack | Chunks) -> bool:  # noqa: D102
        if not isinstance(message, Chunks) or message.packets != self.chunk_packets:
            return False
        told, known = message.missing, send.missing_chunks
        if known is None:
            known = send.missing_chunks = np.ones(-(-send.count // message.packets), np.bool_)
        if told is None:
            return True
        before, end = known.sum(), told.base + len(told.bits)
        if end > len(known):
            return False
        known[: told.base] = False
        known[told.base : end] &= told.bits
        if known.sum() < before:
            send.timeouts_without_progress = 0
        return True


class SdrSrNack(SdrSr):
    """A chunk that is missed before one that is there is sent again after an RTT: "SR NACK"."""

    name = "sdr_sr_nack"

    def on_sack(  # noqa: D102
        self, work: PeerWork, send: Sending, state: SendState, now_ns: int
    ) -> Actions:
        known = send.missing_chunks
        if known is None or known.all() or state.retransmit_pending:
            return
        srtt, _ = self.rtt_ns(work.index)
        missing, sent_ns = self._outstanding(send, state)
        missing[int(np.flatnonzero(~known)[-1]) :] = False
        lost = missing & (sent_ns <= now_ns - srtt)
        yield from self._repeat(work, send, state, lost, now_ns)
