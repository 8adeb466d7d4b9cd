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
    Pause,
    Refuse,
    Resend,
    missing_packets,
)
from softroce_lab.recovery.control import Bitmap
from softroce_lab.recovery.datagram import DatagramPolicy
from softroce_lab.recovery.work import PeerWork, Receiving, Sending


class UdRto(DatagramPolicy):
    """Sender's timer per message, resends by bitmap."""

    name = "ud_rto"

    # ---------------------------------------------------------------- receiver: tells

    def on_first_packet(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        yield from super().on_first_packet(event, now_ns)
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        if receive is not None:
            receive.interval_ns = self._telling_ns(work)
            yield LookAt(receive.handle, now_ns + receive.interval_ns)

    def _telling_ns(self, work: PeerWork) -> int:
        srtt, _ = self.rtt_ns(work.index, at_receiver=True)
        return min(max(srtt // 4, self.timing.tell_least_ns), self.timing.t_max_ns)

    def on_tail_seen(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        return () if receive is None else self._tell(work, receive)

    def _tell(self, work: PeerWork, receive: Receiving) -> Iterator[Action]:
        state = self.view.receive_state(receive.handle)
        if state is None or not state.open:
            return
        receive.received = state.received + state.duplicates
        missing = control.packet_set(missing_packets(state))
        yield self.say(work.index, Bitmap(state.id, receive.key, missing))

    def on_look(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        if receive is not None:
            return self._tell_progress(work, receive, now_ns)
        send = work.sends.get(event.id)
        if send is None or send.handle != event.handle:
            return ()
        return self._timeout(work, send, now_ns)

    def _tell_progress(self, work: PeerWork, receive: Receiving, now_ns: int) -> Iterator[Action]:
        """Tell when packets came, known ones too; else ever more rarely."""
        state = self.view.receive_state(receive.handle)
        if state is None:
            return
        came = state.received + state.duplicates > receive.received
        later_ns = min(2 * receive.interval_ns, self.timing.t_max_ns)
        interval_ns = self._telling_ns(work) if came else later_ns
        receive.interval_ns = interval_ns
        if came or interval_ns == self.timing.t_max_ns:
            yield from self._tell(work, receive)
        yield LookAt(receive.handle, now_ns + receive.interval_ns)

    def on_asked_for(  # noqa: D102
        self, work: PeerWork, receive: Receiving, id_: int, now_ns: int
    ) -> Actions:
        state = self.view.receive_state(receive.handle)
        if state is None:
            return
        if state.open:
            yield from self._tell(work, receive)
        else:
            yield self.say(work.index, Bitmap(id_, receive.key, None))

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
            yield LookAt(send.handle, now_ns + self.rto_ns(work, send))

    def _timeout(self, work: PeerWork, send: Sending, now_ns: int) -> Iterator[Action]:
        state = self.view.send_state(send.handle)
        if state is None:
            return
        yield LookAt(send.handle, now_ns + self.rto_ns(work, send))
        if state.paused:
            yield self.ask_if_ready(send)
            return
        if state.sent < state.count or state.resend_pending:
            return
        send.barren += 1
        missing = self._believed_missing(send)
        action = Resend(send.handle, missing)
        yield from self.resend(work, send, action, int(state.attempts[missing].max()))

    @staticmethod
    def _believed_missing(send: Sending) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        """What the newest bitmap lacks; all without one; the last packet if it lacks nothing.

        The last packet is sent to a receiver that has all of them to have it acknowledge again.
        """
        if send.known_missing is None:
            return np.arange(send.count, dtype=np.uint32)
        missing = send.known_missing.indices()
        return missing if missing.size else np.array([send.count - 1], dtype=np.uint32)

    def on_message(  # noqa: D102
        self, work: PeerWork, message: control.Message, now_ns: int
    ) -> Actions:
        if not isinstance(message, Bitmap):
            yield from super().on_message(work, message, now_ns)
            return
        send = work.sends.get(message.id)
        state = None if send is None else self.view.send_state(send.handle)
        if send is None or state is None or send.key != message.key:
            if message.missing is not None:  # else nothing has begun there; the key may be reused
                yield self.refuse(work, message.id, message.key)
            return
        if not self._learn(send, message.missing):
            yield Refuse("a bitmap reaches beyond the message")
            return
        if state.paused:
            yield Pause(send.handle, False)
            yield LookAt(send.handle, now_ns)

    @staticmethod
    def _learn(send: Sending, missing: control.PacketSet | None) -> bool:
        """Take a bitmap for what is known; False: the message has no such packets."""
        if missing is None:
            return True
        if missing.base + len(missing.bits) > send.count:
            return False
        known = send.known_missing
        if known is None or missing.bits.sum() < known.bits.sum():
            send.barren = 0
        send.known_missing = missing
        return True
