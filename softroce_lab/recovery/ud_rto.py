# SPDX-License-Identifier: GPL-2.0-or-later
"""`ud_rto`: sender-driven recovery over UD, a timer per message; the fair rival of `csa_ud`.

This project's definition (docs/protocols.md, section 2). It has the same packets, bitmaps,
reports, congestion control and acknowledgements; only the detection of loss differs. The receiver
tells what is missing while packets arrive, a quarter of an RTT apart; the sender resends what it
does not know to have arrived when max(3 SRTT, T_min) have passed since the last packet left.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from softroce_lab.recovery import control
from softroce_lab.recovery.api import (
    Action,
    Actions,
    Event,
    LookAt,
    ReceiveState,
    Resend,
    SendState,
    missing_packets,
)
from softroce_lab.recovery.control import Bitmap, Chunks
from softroce_lab.recovery.telling import TellingPolicy
from softroce_lab.recovery.work import PeerWork, Receiving, Sending


class UdRto(TellingPolicy):
    """Sender's timer per message, resends by bitmap."""

    name = "ud_rto"
    tells = Bitmap

    def telling(  # noqa: D102
        self, receive: Receiving, id_: int, state: ReceiveState | None
    ) -> control.Message:
        missing = None if state is None else control.packet_set(missing_packets(state))
        return Bitmap(id_, receive.key, missing)

    # ---------------------------------------------------------------- sender: times out

    def rto_ns(self, work: PeerWork, send: Sending) -> int:
        """max(3 SRTT, T_min); doubling, to T_max, when timeouts in a row bring nothing."""
        srtt, _ = self.rtt_ns(work.index)
        rto_ns = max(self.timing.rto_srtt * srtt, self.timing.t_min_ns)
        return self.backed_off(rto_ns, send.barren)

    def on_sent(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        send = work.sends.get(event.id)
        if send is not None and send.handle == event.handle:
            send.out = True
            yield LookAt(send.handle, now_ns + self.rto_ns(work, send))

    def on_timeout(  # noqa: D102
        self, work: PeerWork, send: Sending, state: SendState, now_ns: int
    ) -> Iterator[Action]:
        yield LookAt(send.handle, now_ns + self.rto_ns(work, send))
        if state.paused:
            send.barren += 1
            yield self.ask_if_ready(send)
            return
        if state.sent < state.count or state.resend_pending:
            return
        send.barren += 1
        missing = self._believed_missing(send)
        action = Resend(send.handle, missing)
        yield from self.resend(work, send, action, int(state.attempts[missing].max()), now_ns)

    @staticmethod
    def _believed_missing(send: Sending) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        """What the newest bitmap lacks; all without one; the last packet if it lacks nothing.

        The last packet is sent to a receiver that has all of them to have it acknowledge again.
        """
        if send.known_missing is None:
            return np.arange(send.count, dtype=np.uint32)
        missing = send.known_missing.indices()
        return missing if missing.size else np.array([send.count - 1], dtype=np.uint32)

    def learn(self, send: Sending, message: Bitmap | Chunks) -> bool:  # noqa: D102
        missing = message.missing
        if missing is None:
            return True
        if missing.base + len(missing.bits) > send.count:
            return False
        known = send.known_missing
        if known is None or missing.bits.sum() < known.bits.sum():
            send.barren = 0
        send.known_missing = missing
        return True
