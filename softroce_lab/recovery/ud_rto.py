# SPDX-License-Identifier: GPL-2.0-or-later
"""`ud_rto`: sender-driven recovery over UD, a timer per message; the fair rival of `csa_ud`.

This project's definition (docs/protocols.md, section 4). It has the same packets, bitmaps,
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
from softroce_lab.recovery.datagram import DatagramPolicy, PeerWork, Receiving, Sending


class UdRto(DatagramPolicy):
    """Sender's timer per message, resends by bitmap."""

    name = "ud_rto"

    # ---------------------------------------------------------------- receiver: tells

    def on_first_packet(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        yield from super().on_first_packet(event, now_ns)
        yield LookAt(event.handle, now_ns + self._telling_ns(self._work(event.peer)))

    def _telling_ns(self, work: PeerWork) -> int:
        srtt, _ = self.rtt_ns(work.index, at_receiver=True)
        return self.clamp(srtt // 4)

    def on_tail_seen(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self._work(event.peer)
        receive = work.receives.get(event.handle)
        return () if receive is None else self._tell(work, receive)

    def _tell(self, work: PeerWork, receive: Receiving) -> Iterator[Action]:
        state = self.view.receive_state(receive.handle)
        if state is None or not state.open:
            return
        receive.received = state.received
        missing = control.packet_set(missing_packets(state))
        yield self.say(work.index, Bitmap(state.id, missing))

    def on_look(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self._work(event.peer)
        receive = work.receives.get(event.handle)
        if receive is not None:
            return self._tell_progress(work, receive, now_ns)
        send = work.sends.get(event.id)
        return () if send is None else self._timeout(work, send, now_ns)

    def _tell_progress(self, work: PeerWork, receive: Receiving, now_ns: int) -> Iterator[Action]:
        state = self.view.receive_state(receive.handle)
        if state is None:
            return
        if state.received > receive.received:
            receive.interval_ns = self._telling_ns(work)
            yield from self._tell(work, receive)
        else:
            receive.interval_ns = self.clamp(2 * receive.interval_ns)
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
            everything = np.ones(receive.count, dtype=np.bool_)
            yield self.say(work.index, Bitmap(id_, control.packet_set(everything)))

    # ---------------------------------------------------------------- sender: times out

    def rto_ns(self, work: PeerWork) -> int:
        """max(3 SRTT, T_min); no longer than T_max when the peer is silent."""
        srtt, _ = self.rtt_ns(work.index)
        return max(self.timing.rto_srtt * srtt, self.timing.t_min_ns)

    def on_sent(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self._work(event.peer)
        send = work.sends.get(event.id)
        if send is not None:
            send.out = True
            yield LookAt(send.handle, now_ns + self.rto_ns(work))

    def _timeout(self, work: PeerWork, send: Sending, now_ns: int) -> Iterator[Action]:
        state = self.view.send_state(send.handle)
        if state is None:
            return
        yield LookAt(send.handle, now_ns + self.rto_ns(work))
        if state.paused:
            yield self.ask_if_ready(send)
            return
        if state.sent < state.count or state.resend_pending:
            return
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
        if send is None or state is None:
            if message.id >= work.next_id:
                yield Refuse(f"a bitmap of message {message.id}, which was never sent")
            return
        if message.missing.base + len(message.missing.bits) > state.count:
            yield Refuse("a bitmap reaches beyond the message")
            return
        send.known_missing = message.missing
        if state.paused:
            yield Pause(send.handle, False)
            yield LookAt(send.handle, now_ns)
