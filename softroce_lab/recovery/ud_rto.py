# SPDX-License-Identifier: GPL-2.0-or-later
"""`ud_rto`: sender-driven recovery over UD, a timer per message; the baseline of `csa_ud`.

This project's definition (docs/protocols.md, section 2). It has the same packets, bitmaps,
reports, congestion control and acknowledgements; only the detection of loss differs. The receiver
tells what is missing while packets arrive, a quarter of an RTT apart; the sender retransmits what
it does not know to have arrived when max(3 SRTT, T_min) have passed since the last packet left.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from softroce_lab.recovery import control
from softroce_lab.recovery.api import (
    Action,
    Actions,
    Event,
    ReceiveState,
    Retransmit,
    SendState,
    SetTimer,
    missing_packets,
)
from softroce_lab.recovery.control import Chunks, Sack
from softroce_lab.recovery.sack_policy import SackPolicy
from softroce_lab.recovery.work import PeerWork, Receiving, Sending


class UdRto(SackPolicy):
    """Sender's timer per message, retransmissions by bitmap."""

    name = "ud_rto"
    sack_type = Sack

    def sack(  # noqa: D102
        self, receive: Receiving, id_: int, state: ReceiveState | None
    ) -> control.Message:
        missing = None if state is None else control.packet_set(missing_packets(state))
        return Sack(id_, receive.key, missing)

    # ---------------------------------------------------------------- sender: times out

    def rto_ns(self, work: PeerWork, send: Sending) -> int:
        """max(3 SRTT, T_min); doubling, to T_max, when timeouts in a row bring nothing."""
        srtt, _ = self.rtt_ns(work.index)
        rto_ns = self.timing.fixed_rto or max(self.timing.rto_srtt * srtt, self.timing.t_min_ns)
        return self.backed_off(rto_ns, send.timeouts_without_progress)

    def on_sent(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        send = work.sends.get(event.id)
        if send is not None and send.handle == event.handle:
            send.out = True
            yield SetTimer(send.handle, now_ns + self.rto_ns(work, send))

    def on_timeout(  # noqa: D102
        self, work: PeerWork, send: Sending, state: SendState, now_ns: int
    ) -> Iterator[Action]:
        yield SetTimer(send.handle, now_ns + self.rto_ns(work, send))
        if state.paused:
            send.timeouts_without_progress += 1
            yield self.probe_receiver(send)
            return
        if state.sent < state.count or state.retransmit_pending:
            return
        send.timeouts_without_progress += 1
        missing = self._believed_missing(send)
        action = Retransmit(send.handle, missing)
        yield from self.retransmit(work, send, action, int(state.attempts[missing].max()), now_ns)

    @staticmethod
    def _believed_missing(send: Sending) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        """What the newest bitmap lacks; all without one; the last packet if it lacks nothing.

        The last packet is sent to a receiver that has all of them to have it acknowledge again.
        """
        if send.known_missing is None:
            return np.arange(send.count, dtype=np.uint32)
        missing = send.known_missing.indices()
        return missing if missing.size else np.array([send.count - 1], dtype=np.uint32)

    def learn(self, send: Sending, message: Sack | Chunks) -> bool:  # noqa: D102
        missing = message.missing
        if missing is None:
            return True
        if missing.base + len(missing.bits) > send.count:
            return False
        known = send.known_missing
        if known is None or missing.bits.sum() < known.bits.sum():
            send.timeouts_without_progress = 0
        send.known_missing = missing
        return True
