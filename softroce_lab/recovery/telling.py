# SPDX-License-Identifier: GPL-2.0-or-later
"""What policies share whose receiver tells what it lacks and whose sender resends by timers.

The receiver tells while packets arrive, a quarter of an RTT apart, then ever more rarely. All of
it is this project's definition (docs/protocols.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from softroce_lab.recovery import control
from softroce_lab.recovery.api import (
    Action,
    Actions,
    Event,
    LookAt,
    Pause,
    ReceiveState,
    Refuse,
    SendState,
)
from softroce_lab.recovery.control import Bitmap, Chunks
from softroce_lab.recovery.datagram import DatagramPolicy
from softroce_lab.recovery.work import PeerWork, Receiving, Sending


class TellingPolicy(DatagramPolicy):
    """Base of `ud_rto` and `sdr_sr`."""

    tells: ClassVar[type[Bitmap] | type[Chunks]]
    """The control message that tells what is missing."""

    # ---------------------------------------------------------------- for subclasses

    def telling(self, receive: Receiving, id_: int, state: ReceiveState | None) -> control.Message:
        """What is missing; without a state all is: no packet has arrived."""
        raise NotImplementedError

    def learn(self, send: Sending, message: Bitmap | Chunks) -> bool:
        """Take what is told for known; False: it contradicts what was sent."""
        raise NotImplementedError

    def on_told(self, work: PeerWork, send: Sending, state: SendState, now_ns: int) -> Actions:
        """The receiver told what it lacks, and it has been learnt."""
        return ()

    def on_timeout(self, work: PeerWork, send: Sending, state: SendState, now_ns: int) -> Actions:
        """The time that the sender set by `LookAt` has come."""
        raise NotImplementedError

    # ---------------------------------------------------------------- receiver: tells

    def on_first_packet(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        actions = super().on_first_packet(event, now_ns)
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        if receive is None:
            return actions
        receive.interval_ns = self._telling_ns(work)
        return (*actions, LookAt(receive.handle, now_ns + receive.interval_ns))

    def _telling_ns(self, work: PeerWork) -> int:
        srtt, _ = self.rtt_ns(work.index, at_receiver=True)
        return min(max(srtt // 4, self.timing.tell_least_ns), self.timing.t_max_ns)

    def on_tail_seen(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        return () if receive is None else self._tell(work, receive, event.id)

    def on_asked_for(  # noqa: D102
        self, work: PeerWork, receive: Receiving, id_: int, now_ns: int
    ) -> Actions:
        return self._tell(work, receive, id_)

    def _tell(self, work: PeerWork, receive: Receiving, id_: int) -> Iterator[Action]:
        state = self.view.receive_state(receive.handle)
        if state is None:
            return
        if state.open:
            receive.received = state.received + state.duplicates
        yield self.say(work.index, self.telling(receive, id_, state if state.open else None))

    def look_at_receive(self, work: PeerWork, receive: Receiving, now_ns: int) -> Iterator[Action]:
        """Tell when packets came, known ones too; else ever more rarely."""
        state = self.view.receive_state(receive.handle)
        if state is None:
            return
        came = state.received + state.duplicates > receive.received
        later_ns = min(2 * receive.interval_ns, self.timing.t_max_ns)
        receive.interval_ns = self._telling_ns(work) if came else later_ns
        if came or receive.interval_ns == self.timing.t_max_ns:
            yield from self._tell(work, receive, state.id)
        yield LookAt(receive.handle, now_ns + receive.interval_ns)

    # ---------------------------------------------------------------- both

    def look_at_send(self, work: PeerWork, send: Sending, now_ns: int) -> Actions:  # noqa: D102
        state = self.view.send_state(send.handle)
        return () if state is None else self.on_timeout(work, send, state, now_ns)

    def on_message(  # noqa: D102
        self, work: PeerWork, message: control.Message, now_ns: int
    ) -> Actions:
        if not isinstance(message, self.tells):
            yield from super().on_message(work, message, now_ns)
            return
        send = work.sends.get(message.id)
        state = None if send is None else self.view.send_state(send.handle)
        if send is None or state is None or send.key != message.key:
            if message.missing is not None:  # else nothing has begun there; the key may be reused
                yield self.refuse(work, message.id, message.key)
        elif not self.learn(send, message):
            yield Refuse("what is told to be missing is not of the message")
        elif state.paused:
            yield Pause(send.handle, False)
            yield LookAt(send.handle, now_ns)
        else:
            yield from self.on_told(work, send, state, now_ns)
