# SPDX-License-Identifier: GPL-2.0-or-later
"""What the policies of chunks share: the receiver sends SACKs, the sender retransmits by timers.

The receiver sends SACKs while packets arrive, a quarter of an RTT apart, then ever more rarely. All
of it is this project's definition (docs/protocols.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from softroce_lab.recovery import control
from softroce_lab.recovery.api import (
    Action,
    Actions,
    Event,
    Pause,
    ReceiveState,
    Refuse,
    SendState,
    SetTimer,
)
from softroce_lab.recovery.control import Chunks, Sack
from softroce_lab.recovery.datagram import DatagramPolicy
from softroce_lab.recovery.work import PeerWork, Receiving, Sending


class SackPolicy(DatagramPolicy):
    """Base of `sdr_sr` and `sdr_sr_nack`."""

    sack_type: ClassVar[type[Sack] | type[Chunks]]
    """The control message that names what is missing."""

    # ---------------------------------------------------------------- for subclasses

    def sack(self, receive: Receiving, id_: int, state: ReceiveState | None) -> control.Message:
        """What is missing; without a state all is: no packet has arrived."""
        raise NotImplementedError

    def learn(self, send: Sending, message: Sack | Chunks) -> bool:
        """Take over a SACK; False: it contradicts what was sent."""
        raise NotImplementedError

    def on_sack(self, work: PeerWork, send: Sending, state: SendState, now_ns: int) -> Actions:
        """A SACK has been taken over."""
        return ()

    def on_timeout(self, work: PeerWork, send: Sending, state: SendState, now_ns: int) -> Actions:
        """The time that the sender set by `SetTimer` has come."""
        raise NotImplementedError

    # ---------------------------------------------------------------- receiver: SACKs

    def on_first_packet(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        actions = super().on_first_packet(event, now_ns)
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        if receive is None:
            return actions
        receive.interval_ns = self._sack_interval_ns(work)
        return (*actions, SetTimer(receive.handle, now_ns + receive.interval_ns))

    def _sack_interval_ns(self, work: PeerWork) -> int:
        srtt, _ = self.rtt_ns(work.index, at_receiver=True)
        return min(max(srtt // 4, self.timing.sack_interval_least_ns), self.timing.t_max_ns)

    def on_tail_seen(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        return () if receive is None else self._send_sack(work, receive, event.id)

    def on_status_request(  # noqa: D102
        self, work: PeerWork, receive: Receiving, id_: int, now_ns: int
    ) -> Actions:
        return self._send_sack(work, receive, id_)

    def _send_sack(self, work: PeerWork, receive: Receiving, id_: int) -> Iterator[Action]:
        state = self.view.receive_state(receive.handle)
        if state is None:
            return
        if state.open:
            receive.received = state.received + state.duplicates
        yield self.send_control(work.index, self.sack(receive, id_, state if state.open else None))

    def check_receive(self, work: PeerWork, receive: Receiving, now_ns: int) -> Iterator[Action]:
        """Send a SACK when packets came, known ones too; else at doubling intervals."""
        state = self.view.receive_state(receive.handle)
        if state is None:
            return
        came = state.received + state.duplicates > receive.received
        later_ns = min(2 * receive.interval_ns, self.timing.t_max_ns)
        receive.interval_ns = self._sack_interval_ns(work) if came else later_ns
        if came or receive.interval_ns == self.timing.t_max_ns:
            yield from self._send_sack(work, receive, state.id)
        yield SetTimer(receive.handle, now_ns + receive.interval_ns)

    # ---------------------------------------------------------------- both

    def check_send(self, work: PeerWork, send: Sending, now_ns: int) -> Actions:  # noqa: D102
        state = self.view.send_state(send.handle)
        return () if state is None else self.on_timeout(work, send, state, now_ns)

    def on_message(  # noqa: D102
        self, work: PeerWork, message: control.Message, now_ns: int
    ) -> Actions:
        if not isinstance(message, self.sack_type):
            yield from super().on_message(work, message, now_ns)
            return
        send = work.sends.get(message.id)
        state = None if send is None else self.view.send_state(send.handle)
        if send is None or state is None or send.key != message.key:
            if message.missing is not None:  # else nothing has begun there; the key may be reused
                yield self.refuse(work, message.id, message.key)
        elif not self.learn(send, message):
            yield Refuse("a SACK names packets beyond the message")
        elif state.paused:
            yield Pause(send.handle, False)
            yield SetTimer(send.handle, now_ns)
        else:
            yield from self.on_sack(work, send, state, now_ns)
