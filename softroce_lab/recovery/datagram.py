# SPDX-License-Identifier: GPL-2.0-or-later
"""What all policies over striped datagrams share: acknowledgements, signs of life, not-ready.

The difference between them, how a loss is found, is left to the subclasses. Everything here is
this project's definition (docs/protocols.md, section 1).
"""

from __future__ import annotations

from collections.abc import Iterator

from softroce_lab.errors import ibv_wc_status
from softroce_lab.recovery import control
from softroce_lab.recovery.api import (
    NEVER_NS,
    Action,
    Actions,
    CompleteSend,
    Control,
    Event,
    FailReceive,
    Key,
    LookAt,
    LookAtPeer,
    Pause,
    Policy,
    Refuse,
    Resend,
    View,
)
from softroce_lab.recovery.defaults import Timing
from softroce_lab.recovery.work import PeerWork, Receiving, Sending


class DatagramPolicy(Policy):
    """Base of `csa_ud` and `ud_rto`."""

    def __init__(self, view: View, timing: Timing) -> None:
        super().__init__(view, timing)
        self.peers: dict[int, PeerWork] = {}

    # ---------------------------------------------------------------- for subclasses

    def work_with(self, peer: int) -> PeerWork:
        """What is outstanding with this peer."""
        work = self.peers.get(peer)
        if work is None:
            work = self.peers[peer] = PeerWork(peer, self.view.message_slots)
        return work

    def rtt_ns(self, peer: int, *, at_receiver: bool = False) -> tuple[int, int]:
        """(SRTT, RTTVAR); the receiver of data knows them from the sender's packets."""
        state = self.view.peer_state(peer)
        srtt = state.remote_srtt_ns if at_receiver else state.srtt_ns
        var = state.remote_rttvar_ns if at_receiver else state.rttvar_ns
        if srtt == 0:
            srtt, var = self.timing.initial_rtt_ns, self.timing.initial_rtt_ns // 2
        return srtt, var

    def clamp(self, interval_ns: float) -> int:
        """An interval between T_min and T_max."""
        return int(min(max(interval_ns, self.timing.t_min_ns), self.timing.t_max_ns))

    def backed_off(self, interval_ns: int, barren: int) -> int:
        """The interval after so many rounds in a row that brought nothing."""
        excess = max(barren - self.timing.eager_rounds, 0)
        return max(min(interval_ns << excess, self.timing.t_max_ns), interval_ns)

    def say(self, peer: int, message: control.Message) -> Control:
        """The action that sends a control message."""
        return Control(peer, control.encode(message, self.view.chunk_bytes))

    def on_asked_for(self, work: PeerWork, receive: Receiving, id_: int, now_ns: int) -> Actions:
        """The sender waits to hear what this receive, its message `id_`, lacks."""
        raise NotImplementedError

    def on_message(self, work: PeerWork, message: control.Message, now_ns: int) -> Actions:
        """A control message that only the subclass understands."""
        return [Refuse(f"unexpected {type(message).__name__}")]

    # ---------------------------------------------------------------- work begins and ends

    def _begin(self, work: PeerWork, now_ns: int) -> Iterator[Action]:
        if work.alive_at_ns is None:
            work.began_ns = work.questioned_ns = now_ns
            work.fruitless = 0
            work.alive_at_ns = now_ns + self.timing.alive_ns
            yield self._next_peer_look(work)

    def _next_peer_look(self, work: PeerWork) -> Action:
        times = [at for at in (work.ack_at_ns, work.alive_at_ns) if at is not None]
        return LookAtPeer(work.index, min(times, default=NEVER_NS))

    def on_send_posted(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        work.add_send(Sending(event.handle, event.peer, event.id, event.key, event.count))
        return self._begin(work, now_ns)

    def on_receive_posted(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        receive = Receiving(event.handle, event.peer, event.key, event.count)
        work.add_receive(receive)
        yield from self._begin(work, now_ns)
        turned_away = work.turned_away.pop(event.key, None)
        if turned_away is not None:
            yield from self.on_asked_for(work, receive, turned_away, now_ns)

    def on_first_packet(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        if receive is None:  # it failed in the meantime
            work.end(event.id, ibv_wc_status.IBV_WC_RETRY_EXC_ERR)
        else:
            work.open(receive, event.id, event.count)
        return ()

    def on_receive_complete(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        work.forget_receive(event.handle)
        work.end(event.id, ibv_wc_status.IBV_WC_SUCCESS)
        return self._acknowledge(work, event.id, now_ns)

    def on_late_packet(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        match work.outcome(event.id):
            case None:
                return ()
            case ibv_wc_status.IBV_WC_SUCCESS:
                return self._acknowledge(work, event.id, now_ns)
            case status:
                refused = control.Refused(event.id, event.key, by_receiver=True, status=status)
                return [self.say(work.index, refused)]

    def fail_send(self, work: PeerWork, send: Sending, status: ibv_wc_status) -> Actions:
        """End a send in error."""
        work.forget_send(send)
        return [CompleteSend(send.handle, status)]

    def fail_receive(self, work: PeerWork, receive: Receiving, status: ibv_wc_status) -> Actions:
        """End a receive in error."""
        work.forget_receive(receive.handle)
        if receive.id is not None:
            work.end(receive.id, status)
        return [FailReceive(receive.handle, status)]

    # ---------------------------------------------------------------- acknowledgements, batched

    def _acknowledge(self, work: PeerWork, id_: int, now_ns: int) -> Iterator[Action]:
        work.acks[id_] = None
        if len(work.acks) >= self.timing.acks_in_batch:
            yield from self._flush_acks(work)
        elif work.ack_at_ns is None:
            srtt, _ = self.rtt_ns(work.index, at_receiver=True)
            work.ack_at_ns = now_ns + min(srtt // 4, self.timing.ack_delay_most_ns)
            yield self._next_peer_look(work)

    def _flush_acks(self, work: PeerWork) -> Iterator[Action]:
        work.ack_at_ns = None
        if work.acks:
            batch = tuple(work.acks)
            yield self.say(work.index, control.Ack(batch + work.acked_before))
            work.acked_before = batch
            work.acks.clear()

    # ---------------------------------------------------------------- signs of life

    def on_peer_look(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        if work.ack_at_ns is not None and now_ns >= work.ack_at_ns:
            yield from self._flush_acks(work)
        if work.alive_at_ns is not None and now_ns >= work.alive_at_ns:
            yield from self._check_alive(work, now_ns)
        yield self._next_peer_look(work)

    def _check_alive(self, work: PeerWork, now_ns: int) -> Iterator[Action]:
        if not work.busy():
            work.alive_at_ns = None
            return
        timing = self.timing
        heard_ns = max(self.view.peer_state(work.index).heard_ns, work.began_ns)
        if heard_ns > work.questioned_ns:
            work.fruitless = 0
        if work.fruitless >= timing.fruitless_rounds:
            yield from self._give_up(work)
            return
        for refused in work.refusals.values():
            yield self.say(work.index, refused)
        if now_ns - heard_ns < timing.alive_ns:
            work.alive_at_ns = heard_ns + timing.alive_ns
            return
        work.alive_at_ns = now_ns + min(timing.alive_ns << work.fruitless, timing.alive_most_ns)
        work.fruitless += 1
        work.questioned_ns = now_ns
        yield self.say(work.index, control.Probe(()))

    def _give_up(self, work: PeerWork) -> Iterator[Action]:
        """The peer is dead, or deaf, or dumb: in the last case it learns here what became of it."""
        work.alive_at_ns = None
        work.refusals.clear()
        status = ibv_wc_status.IBV_WC_RETRY_EXC_ERR
        for send in list(work.sends.values()):
            yield self.say(work.index, control.Refused(send.id, send.key, False, status))
            yield from self.fail_send(work, send, status)
        for receive in list(work.receives.values()):
            if receive.id is not None:
                refused = control.Refused(receive.id, receive.key, True, status)
                yield self.say(work.index, refused)
            yield from self.fail_receive(work, receive, status)

    # ---------------------------------------------------------------- not ready, too long

    def on_no_receive(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        return [self._turn_away(self.work_with(event.peer), event.id, event.key)]

    def _turn_away(self, work: PeerWork, id_: int, key: Key) -> Action:
        work.remember_turned_away(key, id_)
        return self.say(work.index, control.Rnr(id_, key))

    def on_too_long(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        status = ibv_wc_status.IBV_WC_REM_INV_REQ_ERR
        refused = control.Refused(event.id, event.key, by_receiver=True, status=status)
        return [self.say(event.peer, refused)]

    def _receiver_not_ready(
        self, work: PeerWork, message: control.Rnr, now_ns: int
    ) -> Iterator[Action]:
        send = work.sends.get(message.id)
        if send is None or send.key != message.key or now_ns < send.retry_ns:
            return  # packets sent before the pause may be turned away during it
        limit = self.timing.rnr_retry
        if limit < 7 and send.not_ready >= limit:
            yield from self.fail_send(work, send, ibv_wc_status.IBV_WC_RNR_RETRY_EXC_ERR)
            return
        send.not_ready += 1
        send.retry_ns = now_ns + self.timing.t_max_ns
        yield Pause(send.handle, True)
        yield LookAt(send.handle, send.retry_ns)

    def ask_if_ready(self, send: Sending) -> Action:
        """Probe for a paused send; the answer, a look or another RNR, tells whether to go on."""
        return self.say(send.peer, control.Probe(((send.id, send.key),)))

    # ---------------------------------------------------------------- control messages

    def on_control(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        try:
            message = control.decode(event.body)
        except control.ControlError as error:
            return [Refuse(str(error))]
        match message:
            case control.Ack():
                return self._acknowledged(work, message)
            case control.Probe():
                return self._probed(work, message, now_ns)
            case control.Rnr():
                return self._receiver_not_ready(work, message, now_ns)
            case control.Refused():
                return self._refused(work, message)
            case _:
                return self.on_message(work, message, now_ns)

    def _acknowledged(self, work: PeerWork, message: control.Ack) -> Iterator[Action]:
        for id_ in message.ids:
            send = work.sends.get(id_)
            if send is None:
                work.refusals.pop(id_, None)
                if not work.was_sent(id_):
                    yield Refuse(f"acknowledges message {id_}, which was never sent")
                continue
            state = self.view.send_state(send.handle)
            if state is None or state.sent < state.count:
                yield Refuse(f"acknowledges message {id_}, which is not out yet")
                continue
            work.forget_send(send)
            yield from self.on_acknowledged(work, send)
            yield CompleteSend(send.handle, ibv_wc_status.IBV_WC_SUCCESS)

    def on_acknowledged(self, work: PeerWork, send: Sending) -> Actions:
        """A send is complete at the receiver; it is about to complete here."""
        return ()

    def _probed(self, work: PeerWork, message: control.Probe, now_ns: int) -> Iterator[Action]:
        done = []
        for id_, key in message.messages:
            outcome = work.outcome(id_)
            receive = work.receive_of(id_, key)
            if outcome == ibv_wc_status.IBV_WC_SUCCESS:
                done.append(id_)
            elif outcome is not None:
                yield self.say(work.index, control.Refused(id_, key, True, outcome))
            elif receive is not None:
                yield from self.on_asked_for(work, receive, id_, now_ns)
            else:
                yield self._turn_away(work, id_, key)
        if done or not message.messages:
            yield self.say(work.index, control.Ack(tuple(done)))

    def _refused(self, work: PeerWork, message: control.Refused) -> Iterator[Action]:
        try:
            status = ibv_wc_status(message.status)
        except ValueError:
            yield Refuse(f"unknown status {message.status}")
            return
        if status == ibv_wc_status.IBV_WC_SUCCESS:
            yield Refuse("refuses with success")
        elif message.by_receiver:
            send = work.sends.get(message.id)
            if send is not None and send.key == message.key:
                yield from self.fail_send(work, send, status)
        else:
            yield from self._refused_by_sender(work, message, status)

    def _refused_by_sender(
        self, work: PeerWork, message: control.Refused, status: ibv_wc_status
    ) -> Iterator[Action]:
        """Fail what the message fills, or would have; said again, only what it has begun to fill.

        The key may be the next message's by then.
        """
        receive = work.receive_of(message.id, message.key)
        again = message.id in work.refused or work.outcome(message.id) is not None
        if receive is not None and (receive.id is not None or not again):
            yield from self.fail_receive(work, receive, status)
            work.end(message.id, status)
        work.remember_refused(message.id)
        yield self.say(work.index, control.Ack((message.id,)))

    def refuse(self, work: PeerWork, id_: int, key: Key) -> Action:
        """Tell the receiver that its message is none of those outstanding here."""
        status = ibv_wc_status.IBV_WC_RETRY_EXC_ERR
        return self.say(work.index, control.Refused(id_, key, by_receiver=False, status=status))

    def resend(
        self, work: PeerWork, send: Sending, action: Resend, attempts_most: int
    ) -> Iterator[Action]:
        """Resend, unless a packet was sent as often as may be: then fail at both ends."""
        if attempts_most >= self.timing.most_attempts:
            status = ibv_wc_status.IBV_WC_RETRY_EXC_ERR
            refused = control.Refused(send.id, send.key, by_receiver=False, status=status)
            work.refusals[send.id] = refused  # repeated until it is heard
            yield self.say(work.index, refused)
            yield from self.fail_send(work, send, status)
            return
        send.resending = action.indices
        yield action
