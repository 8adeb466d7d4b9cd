# SPDX-License-Identifier: GPL-2.0-or-later
"""The session of a `MessagePolicy`: its hooks in, its actions out, and bounds around both.

Acknowledgements, keepalive, RNR, refusals and giving up are `Session`'s. What a policy
answers is checked against what is outstanding: an action that names a message that is over does
nothing, and a packet that was never sent is not retransmitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from softroce_lab.recovery import api, control, policy
from softroce_lab.recovery.api import (
    Action,
    Actions,
    Event,
    ReceiveState,
    View,
    missing_packets,
)
from softroce_lab.recovery.control import Chunks, Sack
from softroce_lab.recovery.defaults import Timing
from softroce_lab.recovery.policy import MessagePolicy
from softroce_lab.recovery.session import feedback
from softroce_lab.recovery.session.hook_view import HookView
from softroce_lab.recovery.session.session import Session
from softroce_lab.recovery.work import PeerWork, Receiving, Sending


class MessageSession(Session):
    """Runs a policy on an endpoint's events."""

    def __init__(
        self,
        view: View,
        timing: Timing,
        hosted: type[MessagePolicy],
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """`options`: the policy's; OptionError for a value that an option does not take."""
        super().__init__(view, timing)
        self._hook_view = HookView(view)
        self.hosted = hosted(cast("View", self._hook_view), timing, options)
        self._chunk_packets = self.hosted.chunk_packets

    # ---------------------------------------------------------------- events to hooks

    def on_send_posted(self, event: Event, now_ns: int) -> Actions:
        work = self.work_with(event.peer)
        begun = list(super().on_send_posted(event, now_ns))
        hook = self.hosted.on_send_posted(work.sends[event.id], now_ns)
        return [*begun, *self._acted(work, hook, now_ns)]

    def on_sent(self, event: Event, now_ns: int) -> Actions:
        super().on_sent(event, now_ns)
        work = self.work_with(event.peer)
        send = work.sends.get(event.id)
        if send is None or send.handle != event.handle:
            return ()
        return self._acted(work, self.hosted.on_sent(send, now_ns), now_ns)

    def on_receive_posted(self, event: Event, now_ns: int) -> Actions:
        work = self.work_with(event.peer)
        begun = list(super().on_receive_posted(event, now_ns))
        receive = work.receives[event.handle]
        state = self.view.receive_state(receive.handle)
        return [*begun, *self._at(self.hosted.on_receive_posted, work, receive, state, now_ns)]

    def on_first_packet(self, event: Event, now_ns: int) -> Actions:
        super().on_first_packet(event, now_ns)
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        if receive is None:
            return ()
        state = self.view.receive_state(receive.handle)
        return self._at(self.hosted.on_first_packet, work, receive, state, now_ns)

    def on_tail_seen(self, event: Event, now_ns: int) -> Actions:
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        if receive is None:
            return ()
        state = self.view.receive_state(receive.handle)
        return self._at(self.hosted.on_last_packet, work, receive, state, now_ns)

    def on_gap(self, event: Event, now_ns: int) -> Actions:
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        state = None if receive is None else self.view.receive_state(receive.handle)
        if receive is None or state is None:
            return ()
        packets = np.frombuffer(event.body, np.uint32)
        packets = packets[missing_packets(state)[packets]]  # some may have come meanwhile
        if not packets.size:
            return ()
        self._hook_view.held = receive.handle, state
        try:
            return self._acted(work, self.hosted.on_gap(receive, packets, now_ns), now_ns)
        finally:
            self._hook_view.held = None

    def on_parity(self, event: Event, now_ns: int) -> Actions:
        work = self.work_with(event.peer)
        send = work.sends.get(event.id)
        if send is None or send.handle != event.handle:
            return ()
        return self._acted(work, self.hosted.on_parity(send, _submessage(event), now_ns), now_ns)

    def on_chunk(self, event: Event, now_ns: int) -> Actions:
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        if receive is None:
            return ()
        state = self.view.receive_state(receive.handle)
        number = _submessage(event)
        return self._at(
            lambda receive, now_ns: self.hosted.on_chunk(receive, number, now_ns),
            work,
            receive,
            state,
            now_ns,
        )

    def _at(
        self,
        hook: Callable[[Receiving, int], policy.Actions],
        work: PeerWork,
        receive: Receiving,
        state: ReceiveState | None,
        now_ns: int,
    ) -> list[Action]:
        """The actions of a hook about a receive, unless it is complete: its event follows."""
        if state is None:
            return []
        self._hook_view.held = receive.handle, state
        try:
            return self._acted(work, hook(receive, now_ns), now_ns)
        finally:
            self._hook_view.held = None

    # ---------------------------------------------------------------- timers

    def check_send(self, work: PeerWork, send: Sending, now_ns: int) -> Actions:
        state = self.view.send_progress(send.handle)
        if state is None:
            return ()
        if state.paused:  # the receiver had no receive posted
            again = api.SetTimer(send.handle, now_ns + self._paused_ns(work, send))
            actions: list[Action] = [again, self.probe_receiver(send)]
        else:
            actions = self._acted(work, self.hosted.on_send_timer(send, now_ns), now_ns)
        # A timer that ends while packets wait to leave proves no loss of what was sent.
        if state.paused or (state.sent == state.count and not state.retransmit_pending):
            send.timeouts_without_progress += 1
        return actions

    def _paused_ns(self, work: PeerWork, send: Sending) -> int:
        """Until the receiver is asked again."""
        timing = self.timing
        srtt_ns, _ = self.rtt_ns(work.index)
        wait_ns = timing.fixed_rto_ns or max(timing.rto_srtt * srtt_ns, timing.t_min_ns)
        return self.backed_off(wait_ns, send.timeouts_without_progress)

    def check_receive(self, work: PeerWork, receive: Receiving, now_ns: int) -> Actions:
        state = self.view.receive_state(receive.handle)
        if state is None:
            return ()
        arrived = state.received + state.duplicates
        receive.timeouts_without_progress = (
            0 if arrived > receive.received else receive.timeouts_without_progress + 1
        )
        receive.received = arrived
        return self._at(self.hosted.on_receive_timer, work, receive, state, now_ns)

    # ---------------------------------------------------------------- feedback

    def on_status_request(
        self, work: PeerWork, receive: Receiving, id_: int, now_ns: int
    ) -> Actions:
        return self._feedback(work, receive, id_)

    def _feedback(self, work: PeerWork, receive: Receiving, id_: int) -> list[Action]:
        state = self._hook_view.receive_state(receive.handle)
        if state is None:
            return []
        if state.open:
            receive.fed_back = state.received + state.duplicates
        made = feedback.message(id_, receive.key, state, self._chunk_packets)
        return [self.send_control(work.index, made)]

    def on_message(self, work: PeerWork, message: control.Message, now_ns: int) -> Actions:
        if not isinstance(message, Sack | Chunks):
            return super().on_message(work, message, now_ns)
        send = work.sends.get(message.id)
        state = None if send is None else self.view.send_progress(send.handle)
        if send is None or state is None or send.key != message.key:
            # Without a set nothing has begun there, and the key may be the next message's.
            known = message.missing is not None
            return [self.refuse(work, message.id, message.key)] if known else []
        if not feedback.learn(send, message, self._chunk_packets):
            return [api.Refuse("missing packets that are not of the message")]
        if state.paused:
            return [api.Pause(send.handle, False), api.SetTimer(send.handle, now_ns)]
        return self._acted(work, self.hosted.on_feedback(send, now_ns), now_ns)

    # ---------------------------------------------------------------- actions

    def _acted(self, work: PeerWork, actions: policy.Actions, now_ns: int) -> list[Action]:
        """What the policy's actions are to the engine. On the path of every event."""
        made: list[Action] = []
        for action in actions:
            if isinstance(action, policy.SetTimer):
                made.append(api.SetTimer(action.message.handle, action.at_ns))
            elif isinstance(action, policy.Feedback):
                receive = action.receive
                if receive.id is not None:
                    made += self._feedback(work, receive, receive.id)
            elif isinstance(action, policy.Retransmit):
                made += self._retransmit(work, action, now_ns)
            elif isinstance(action, policy.RequestStatus):
                made.append(self.probe_receiver(action.send))
            elif isinstance(action, policy.DetectGaps):
                made.append(api.DetectGaps(action.receive.handle, int(action.window_ns)))
            else:
                made.append(_of_engine(action))
        return made

    def _retransmit(
        self, work: PeerWork, wanted: policy.Retransmit, now_ns: int
    ) -> Iterator[Action]:
        send = wanted.send
        state = self.view.send_state(send.handle)
        if state is None or work.sends.get(send.id) is not send:
            return
        packets = np.asarray(wanted.packets, dtype=np.uint32)
        packets = packets[packets < state.sent]
        if packets.size:
            attempts = int(state.attempts[packets].max())
            copies = min(int(wanted.copies), max(self.timing.most_attempts - attempts, 1))
            action = api.Retransmit(send.handle, packets, wanted.urgent, copies)
            yield from self.retransmit(work, send, action, attempts, now_ns)

    def summary(self) -> dict[str, Any]:
        return {**super().summary(), **self.hosted.summary()}


def _of_engine(
    action: policy.Encode | policy.Restore | policy.UseCodes | policy.PathWeights,
) -> Action:
    """The engine's action that needs nothing of the session."""
    if isinstance(action, policy.Encode):
        return api.Encode(action.send.handle, action.submessage, action.code)
    if isinstance(action, policy.Restore):
        return api.Restore(action.receive.handle, action.submessage, action.code)
    if isinstance(action, policy.UseCodes):
        return api.UseCodes(action.peer, action.by_bits)
    return api.UsePaths(action.peer, action.weights)


def _submessage(event: Event) -> int:
    return int(np.frombuffer(event.body, np.uint32)[0])
