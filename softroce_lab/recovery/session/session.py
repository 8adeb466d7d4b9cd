# SPDX-License-Identifier: GPL-2.0-or-later
"""The session of an endpoint: acknowledgements, keepalives, RNR, refusals and giving up.

How a loss is found is left to the subclasses. Everything here is this project's definition
(docs/protocols.md, section 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, cast

from softroce_lab.errors import ibv_wc_status
from softroce_lab.recovery import control, jitter
from softroce_lab.recovery.api import (
    NEVER_NS,
    Action,
    Actions,
    CompleteSend,
    Control,
    Event,
    FailReceive,
    Key,
    Pause,
    PeerState,
    Policy,
    Refuse,
    Retransmit,
    SetPeerTimer,
    SetTimer,
    View,
)
from softroce_lab.recovery.defaults import Timing
from softroce_lab.recovery.work import PeerWork, Receiving, Sending

_MOST_COPIES = 16  # times in a row: more than any link is likely to take at once


class Session(Policy):
    """Acknowledges, asks, refuses and gives up; subclasses decide what is lost."""

    handlers: ClassVar[dict[type, str]] = {
        control.Ack: "_acknowledged",
        control.Keepalive: "_on_keepalive",
        control.Rnr: "_on_rnr",
        control.Refused: "_refused",
    }
    """The method for a control message; others go to `on_message`.

    By name: a policy with its own methods in a dict would be garbage that only the collector finds,
    and with it the fabric that it depends on.
    """

    def __init__(
        self, view: View, timing: Timing, options: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(view, timing, options)
        self.peers: dict[int, PeerWork] = {}
        self.keepalives = 0
        self._chunk_bytes = view.chunk_bytes
        self._control_bytes = view.control_bytes

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
        if at_receiver:
            return self.reported_rtt_ns(state)
        return self._or_initial(state.srtt_ns, state.rttvar_ns)

    def reported_rtt_ns(self, state: PeerState) -> tuple[int, int]:
        """(SRTT, RTTVAR) as the sender of data sent them."""
        return self._or_initial(state.remote_srtt_ns, state.remote_rttvar_ns)

    def _or_initial(self, srtt_ns: int, rttvar_ns: int) -> tuple[int, int]:
        if srtt_ns == 0:
            return self.timing.initial_rtt_ns, self.timing.initial_rtt_ns // 2
        return srtt_ns, rttvar_ns

    def clamp(self, interval_ns: int) -> int:
        """An interval between T_min and T_max."""
        return min(max(interval_ns, self.timing.t_min_ns), self.timing.t_max_ns)

    def backed_off(self, interval_ns: int, timeouts_without_progress: int) -> int:
        """The interval after so many rounds in a row that brought nothing."""
        return self.timing.backed_off_ns(interval_ns, timeouts_without_progress)

    def send_control(self, peer: int, message: control.Message) -> Control:
        """The action that sends a control message."""
        return Control(peer, message.encode(self._control_bytes))

    def on_status_request(
        self, work: PeerWork, receive: Receiving, id_: int, now_ns: int
    ) -> Actions:
        """The sender asks what this receive, its message `id_`, lacks."""
        raise NotImplementedError

    def check_receive(self, work: PeerWork, receive: Receiving, now_ns: int) -> Actions:
        """The time set for this receive has come."""
        raise NotImplementedError

    def check_send(self, work: PeerWork, send: Sending, now_ns: int) -> Actions:
        """The time set for this send has come."""
        raise NotImplementedError

    def on_message(self, work: PeerWork, message: control.Message, now_ns: int) -> Actions:
        """A control message that only the subclass understands."""
        return [Refuse(f"unexpected {type(message).__name__}")]

    # ---------------------------------------------------------------- work begins and ends

    def _begin(self, work: PeerWork, now_ns: int) -> list[Action]:
        """With the first work there is, questions begin."""
        if work.keepalive_at_ns is not None:
            return []
        work.began_ns = work.keepalive_sent_ns = now_ns
        work.keepalives_unanswered = 0
        work.keepalive_at_ns = now_ns + self.timing.keepalive_interval_ns
        return [self._next_peer_timer(work)]

    def _next_peer_timer(self, work: PeerWork) -> Action:
        ack_at_ns = NEVER_NS if work.ack_at_ns is None else work.ack_at_ns
        keepalive_at_ns = NEVER_NS if work.keepalive_at_ns is None else work.keepalive_at_ns
        return SetPeerTimer(work.index, min(ack_at_ns, keepalive_at_ns))

    def on_send_posted(self, event: Event, now_ns: int) -> Actions:
        work = self.work_with(event.peer)
        work.add_send(Sending(event.handle, event.peer, event.id, event.key, event.count))
        return self._begin(work, now_ns)

    def on_receive_posted(self, event: Event, now_ns: int) -> Actions:
        work = self.work_with(event.peer)
        receive = Receiving(event.handle, event.peer, event.key, event.count)
        work.add_receive(receive)
        actions = self._begin(work, now_ns)
        rnr_sent = work.rnr_sent.pop(receive.key, None)
        if rnr_sent is not None:
            actions += self.on_status_request(work, receive, rnr_sent, now_ns)
        return actions

    def on_sent(self, event: Event, now_ns: int) -> Actions:
        send = self.work_with(event.peer).sends.get(event.id)
        if send is not None and send.handle == event.handle:
            send.out = True
        return ()

    def on_first_packet(self, event: Event, now_ns: int) -> Actions:
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        if receive is None:  # it failed in the meantime
            work.end(event.id, ibv_wc_status.IBV_WC_RETRY_EXC_ERR)
        else:
            work.open(receive, event.id, event.count)
        return ()

    def on_receive_complete(self, event: Event, now_ns: int) -> Actions:
        work = self.work_with(event.peer)
        work.forget_receive(event.handle)
        work.end(event.id, ibv_wc_status.IBV_WC_SUCCESS)
        return self._acknowledge(work, event.id, now_ns)

    def on_late_packet(self, event: Event, now_ns: int) -> Actions:
        work = self.work_with(event.peer)
        match work.outcome(event.id):
            case None:
                return ()
            case ibv_wc_status.IBV_WC_SUCCESS:
                return self._acknowledge(work, event.id, now_ns)
            case status:
                refused = control.Refused(event.id, event.key, by_receiver=True, status=status)
                return [self.send_control(work.index, refused)]

    def on_timer(self, event: Event, now_ns: int) -> Actions:
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        if receive is not None:
            return self.check_receive(work, receive, now_ns)
        send = work.sends.get(event.id)
        if send is None or send.handle != event.handle:
            return ()
        return self.check_send(work, send, now_ns)

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

    def _acknowledge(self, work: PeerWork, id_: int, now_ns: int) -> list[Action]:
        """Soon, with others; at once where no other receive waits.

        What gets no response waits for another time each time: a periodic outage might meet all
        that follow a packet after the same one.
        """
        unacknowledged = self._acks_without_effect(work, id_)
        work.acks[id_] = None
        full = len(work.acks) >= self.timing.acks_in_batch
        if full or not (work.receives or unacknowledged):
            return self._flush_acks(work, now_ns)
        if work.ack_at_ns is not None:
            return []
        srtt, _ = self.rtt_ns(work.index, at_receiver=True)
        delay_ns = min(srtt // 4, self.timing.ack_delay_most_ns)
        work.ack_at_ns = now_ns + (
            jitter.share(delay_ns, unacknowledged) if unacknowledged else delay_ns
        )
        return [self._next_peer_timer(work)]

    def _acks_without_effect(self, work: PeerWork, id_: int) -> int:
        """Acknowledgements of this message without effect, beyond those that may well be lost."""
        return max(work.outcomes[id_ % work.slots].acknowledgements - self.timing.eager_rounds, 0)

    def _flush_acks(self, work: PeerWork, now_ns: int) -> list[Action]:
        batch = tuple(work.acks)
        ack = self.send_control(work.index, control.Ack(batch + work.acked_before))
        times = self._copies(work, now_ns)
        work.acked_before = batch
        work.acks.clear()
        work.ack_at_ns = None
        return [ack] * times

    def _copies(self, work: PeerWork, now_ns: int) -> int:
        """How many redundant acknowledgements are sent: more and more of those without effect.

        Loss may be synchronised with what makes the receiver send, and take each of them. It counts
        once a round trip: all packets of a spurious retransmission are acknowledged.
        """
        srtt, _ = self.rtt_ns(work.index, at_receiver=True)
        counted = [id_ for id_ in work.acks if work.count_acknowledgement(id_, now_ns, srtt)]
        return min(
            max((self._acks_without_effect(work, id_) for id_ in counted), default=0) + 1,
            _MOST_COPIES,
        )

    # ---------------------------------------------------------------- keepalives

    def on_peer_timer(self, event: Event, now_ns: int) -> Actions:
        work = self.work_with(event.peer)
        actions: list[Action] = []
        if work.ack_at_ns is not None and now_ns >= work.ack_at_ns:
            actions += self._flush_acks(work, now_ns)
        if work.keepalive_at_ns is not None and now_ns >= work.keepalive_at_ns:
            actions += self._check_keepalive(work, now_ns)
        actions.append(self._next_peer_timer(work))
        return actions

    def _check_keepalive(self, work: PeerWork, now_ns: int) -> Iterator[Action]:
        if not work.busy():
            work.keepalive_at_ns = None
            return
        timing = self.timing
        last_received_ns = self._last_received_ns(work)
        if last_received_ns > work.keepalive_sent_ns:
            work.keepalives_unanswered = 0
        if work.keepalives_unanswered >= timing.keepalive_probes:
            yield from self._give_up(work)
            return
        for refused in work.refusals.values():
            yield self.send_control(work.index, refused)
        if now_ns - last_received_ns < timing.keepalive_interval_ns:
            work.keepalive_at_ns = last_received_ns + timing.keepalive_interval_ns
            return
        work.keepalive_at_ns = now_ns + timing.keepalive_after_ns(work.keepalives_unanswered)
        work.keepalives_unanswered += 1
        work.keepalive_sent_ns = now_ns
        yield self._send_keepalive(work.index, ())

    def _last_received_ns(self, work: PeerWork) -> int:
        """When the last packet came, or the work with this peer began."""
        return max(self.view.peer_state(work.index).last_received_ns, work.began_ns)

    def _give_up(self, work: PeerWork) -> Iterator[Action]:
        """The peer is dead or unreachable; one that still receives learns here that the work
        failed.
        """
        work.keepalive_at_ns = None
        work.refusals.clear()
        status = ibv_wc_status.IBV_WC_RETRY_EXC_ERR
        for send in list(work.sends.values()):
            yield self.send_control(work.index, control.Refused(send.id, send.key, False, status))
            yield from self.fail_send(work, send, status)
        for receive in list(work.receives.values()):
            if receive.id is not None:
                refused = control.Refused(receive.id, receive.key, True, status)
                yield self.send_control(work.index, refused)
            yield from self.fail_receive(work, receive, status)

    # ---------------------------------------------------------------- not ready, too long

    def on_no_receive(self, event: Event, now_ns: int) -> Actions:
        return [self._send_rnr(self.work_with(event.peer), event.id, event.key)]

    def _send_rnr(self, work: PeerWork, id_: int, key: Key) -> Action:
        work.remember_rnr(key, id_)
        return self.send_control(work.index, control.Rnr(id_, key))

    def on_too_long(self, event: Event, now_ns: int) -> Actions:
        status = ibv_wc_status.IBV_WC_REM_INV_REQ_ERR
        work = self.work_with(event.peer)
        send = work.sends.get(event.id)
        if send is not None and send.handle == event.handle:
            return self.give_up_send(work, send, status)
        refused = control.Refused(event.id, event.key, by_receiver=True, status=status)
        return [self.send_control(event.peer, refused)]

    def _on_rnr(self, work: PeerWork, message: control.Rnr, now_ns: int) -> Iterator[Action]:
        send = work.sends.get(message.id)
        if send is None or send.key != message.key or now_ns < send.retry_ns:
            return  # packets sent before the pause may get an RNR NAK during it
        limit = self.timing.rnr_retry
        if limit < 7 and send.rnr_naks >= limit:
            yield from self.fail_send(work, send, ibv_wc_status.IBV_WC_RNR_RETRY_EXC_ERR)
            return
        send.rnr_naks += 1
        send.timeouts_without_progress = 0  # it answered
        send.retry_ns = now_ns + self.timing.t_max_ns
        yield Pause(send.handle, True)
        yield SetTimer(send.handle, send.retry_ns)

    def probe_receiver(self, send: Sending) -> Action:
        """Probe for a paused send; the response, a NACK or another RNR, decides whether to go
        on.
        """
        return self._send_keepalive(send.peer, ((send.id, send.key),))

    def _send_keepalive(self, peer: int, messages: tuple[tuple[int, Key], ...]) -> Action:
        self.keepalives += 1
        return self.send_control(peer, control.Keepalive(messages))

    def summary(self) -> dict[str, Any]:
        return {"keepalives": self.keepalives}

    # ---------------------------------------------------------------- control messages

    def on_control(self, event: Event, now_ns: int) -> Actions:
        work = self.work_with(event.peer)
        try:
            message = control.decode(event.body)
        except control.ControlError as error:
            return [Refuse(str(error))]
        handler = getattr(self, self.handlers.get(type(message), "on_message"))
        return cast("Actions", handler(work, message, now_ns))

    def _acknowledged(self, work: PeerWork, message: control.Ack, now_ns: int) -> list[Action]:
        actions: list[Action] = []
        for id_ in message.ids:
            send = work.sends.get(id_)
            if send is None:
                work.refusals.pop(id_, None)
                if not work.was_sent(id_):
                    actions.append(Refuse(f"acknowledges message {id_}, which was never sent"))
            elif not self._is_out(send):
                actions.append(Refuse(f"acknowledges message {id_}, which is not out yet"))
            else:
                work.forget_send(send)
                actions += self.on_acknowledged(work, send)
                actions.append(CompleteSend(send.handle, ibv_wc_status.IBV_WC_SUCCESS))
        return actions

    def _is_out(self, send: Sending) -> bool:
        """Whether each packet was sent; while retransmissions are pending no event has shown it."""
        if not send.out:
            state = self.view.send_progress(send.handle)
            send.out = state is not None and state.sent == state.count
        return send.out

    def on_acknowledged(self, work: PeerWork, send: Sending) -> Actions:
        """A send is complete at the receiver; it is about to complete here."""
        return ()

    def _on_keepalive(
        self, work: PeerWork, message: control.Keepalive, now_ns: int
    ) -> Iterator[Action]:
        done = []
        for id_, key in message.messages:
            outcome = work.outcome(id_)
            receive = work.receive_of(id_, key)
            if outcome == ibv_wc_status.IBV_WC_SUCCESS:
                done.append(id_)
            elif outcome is not None:
                yield self.send_control(work.index, control.Refused(id_, key, True, outcome))
            elif receive is not None:
                yield from self.on_status_request(work, receive, id_, now_ns)
            else:
                yield self._send_rnr(work, id_, key)
        if done or not message.messages:
            yield self.send_control(work.index, control.Ack(tuple(done)))

    def _refused(self, work: PeerWork, message: control.Refused, now_ns: int) -> Iterator[Action]:
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
        """Fail what the message fills, or would have; if repeated, only what it has begun to fill.

        The key may be the next message's by then.
        """
        receive = work.receive_of(message.id, message.key)
        again = message.id in work.refused or work.outcome(message.id) is not None
        if receive is not None and (receive.id is not None or not again):
            yield from self.fail_receive(work, receive, status)
            work.end(message.id, status)
        work.remember_refused(message.id)
        yield self.send_control(work.index, control.Ack((message.id,)))

    def refuse(self, work: PeerWork, id_: int, key: Key) -> Action:
        """Tell the receiver that its message is none of those outstanding here."""
        status = ibv_wc_status.IBV_WC_RETRY_EXC_ERR
        return self.send_control(
            work.index, control.Refused(id_, key, by_receiver=False, status=status)
        )

    def give_up_send(
        self, work: PeerWork, send: Sending, status: ibv_wc_status
    ) -> Iterator[Action]:
        """Fail a send at both ends."""
        refused = control.Refused(send.id, send.key, by_receiver=False, status=status)
        work.refusals[send.id] = refused  # repeated until it is acknowledged
        yield self.send_control(work.index, refused)
        yield from self.fail_send(work, send, status)

    def retransmit(
        self, work: PeerWork, send: Sending, action: Retransmit, attempts_most: int, now_ns: int
    ) -> Iterator[Action]:
        """Retransmit, unless a packet was sent as often as may be: then fail at both ends.

        Attempts are bounded for data that a living peer never gets. What becomes of a silent peer,
        questions decide: the second half of the attempts is kept until it sends again.
        """
        if attempts_most >= self.timing.most_attempts:
            yield from self.give_up_send(work, send, ibv_wc_status.IBV_WC_RETRY_EXC_ERR)
            return
        silent_ns = now_ns - self._last_received_ns(work)
        if 2 * attempts_most >= self.timing.most_attempts and silent_ns > 2 * self.timing.t_max_ns:
            return
        yield action
