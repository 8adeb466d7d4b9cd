# SPDX-License-Identifier: GPL-2.0-or-later
"""What all policies over striped datagrams share: acknowledgements, signs of life, not-ready.

The difference between them, how a loss is found, is left to the subclasses. Everything here is
this project's definition (docs/protocols.md, section 1).
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Iterator

from softroce_lab.errors import ibv_wc_status
from softroce_lab.recovery import control
from softroce_lab.recovery.api import (
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

_MOST_REMEMBERED = 4096  # completed messages, and messages that found no receive, a peer


@dataclasses.dataclass(slots=True)
class Sending:
    """A send that has not been acknowledged."""

    handle: int
    peer: int
    id: int
    key: Key
    count: int
    out: bool = False  # its first pass and all resends have left
    not_ready: int = 0  # times the receiver was not ready
    answer: tuple[int, int] | None = None  # round and packets, due when the resends are out
    known_missing: control.PacketSet | None = None  # as the receiver last told (`ud_rto`)


@dataclasses.dataclass(slots=True)
class Receiving:
    """A posted receive that is not complete."""

    handle: int
    peer: int
    key: Key
    count: int
    id: int | None = None  # None: no packet has arrived
    round: int = 0
    asked_ns: int = -1
    received: int = 0  # packets, when last looked at
    echo_ns: int | None = None  # the stamp up to which packets have had time to arrive
    interval_ns: int = 0


@dataclasses.dataclass(slots=True)
class PeerWork:
    """What is outstanding with one peer."""

    index: int
    sends: dict[int, Sending] = dataclasses.field(default_factory=dict)  # by id
    sends_by_key: dict[Key, Sending] = dataclasses.field(default_factory=dict)
    receives: dict[int, Receiving] = dataclasses.field(default_factory=dict)  # by handle
    receives_by_key: dict[Key, Receiving] = dataclasses.field(default_factory=dict)
    unopened: dict[int, Receiving] = dataclasses.field(default_factory=dict)  # in order of posting
    next_id: int = 0
    completed: OrderedDict[int, None] = dataclasses.field(default_factory=OrderedDict)
    turned_away: OrderedDict[Key, int] = dataclasses.field(default_factory=OrderedDict)
    acks: list[int] = dataclasses.field(default_factory=list)
    ack_at_ns: int | None = None
    alive_at_ns: int | None = None
    began_ns: int = 0
    fruitless: int = 0
    stretch: int = 1  # of the look interval, grown by looks that came too early

    def busy(self) -> bool:
        """Whether anything is outstanding."""
        return bool(self.sends or self.receives)


def remember(record: OrderedDict[int, None], value: int) -> None:
    """Add to a bounded record; the oldest entry makes room."""
    record[value] = None
    if len(record) > _MOST_REMEMBERED:
        record.popitem(last=False)


class DatagramPolicy(Policy):
    """Base of `csa_ud` and `ud_rto`."""

    def __init__(self, view: View, timing: Timing) -> None:
        super().__init__(view, timing)
        self.peers: dict[int, PeerWork] = {}

    # ---------------------------------------------------------------- for subclasses

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

    def _work(self, peer: int) -> PeerWork:
        work = self.peers.get(peer)
        if work is None:
            work = self.peers[peer] = PeerWork(peer)
        return work

    def _begin(self, work: PeerWork, now_ns: int) -> Iterator[Action]:
        if work.alive_at_ns is None:
            work.began_ns = now_ns
            work.fruitless = 0
            work.alive_at_ns = now_ns + self.timing.alive_ns
            yield self._next_peer_look(work)

    def _next_peer_look(self, work: PeerWork) -> Action:
        times = [at for at in (work.ack_at_ns, work.alive_at_ns) if at is not None]
        return (
            LookAtPeer(work.index, min(times)) if times else LookAtPeer(work.index, (1 << 63) - 1)
        )

    def on_send_posted(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self._work(event.peer)
        send = Sending(event.handle, event.peer, event.id, event.key, event.count)
        work.sends[send.id] = work.sends_by_key[send.key] = send
        work.next_id = event.id + 1
        return self._begin(work, now_ns)

    def on_receive_posted(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self._work(event.peer)
        receive = Receiving(event.handle, event.peer, event.key, event.count)
        work.receives[event.handle] = work.receives_by_key[event.key] = receive
        work.unopened[event.handle] = receive
        yield from self._begin(work, now_ns)
        turned_away = work.turned_away.pop(event.key, None)
        if turned_away is not None:
            yield from self.on_asked_for(work, receive, turned_away, now_ns)

    def on_first_packet(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self._work(event.peer)
        receive = work.receives.get(event.handle)
        if receive is not None:  # else it failed in the meantime
            receive.id = event.id
            receive.count = event.count
            work.unopened.pop(event.handle, None)
        return ()

    def on_receive_complete(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self._work(event.peer)
        self._forget_receive(work, event.handle)
        return self._acknowledge(work, event.id, now_ns)

    def on_late_packet(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        return self._acknowledge(self._work(event.peer), event.id, now_ns)

    def _forget_receive(self, work: PeerWork, handle: int) -> None:
        receive = work.receives.pop(handle, None)
        work.unopened.pop(handle, None)
        if receive is not None and work.receives_by_key.get(receive.key) is receive:
            del work.receives_by_key[receive.key]

    def _forget_send(self, work: PeerWork, send: Sending) -> None:
        del work.sends[send.id]
        if work.sends_by_key.get(send.key) is send:
            del work.sends_by_key[send.key]

    def fail_send(self, work: PeerWork, send: Sending, status: ibv_wc_status) -> Actions:
        """End a send in error."""
        self._forget_send(work, send)
        return [CompleteSend(send.handle, status)]

    def fail_receive(self, work: PeerWork, receive: Receiving, status: ibv_wc_status) -> Actions:
        """End a receive in error."""
        self._forget_receive(work, receive.handle)
        return [FailReceive(receive.handle, status)]

    # ---------------------------------------------------------------- acknowledgements, batched

    def _acknowledge(self, work: PeerWork, id_: int, now_ns: int) -> Iterator[Action]:
        remember(work.completed, id_)
        work.acks.append(id_)
        if len(work.acks) >= self.timing.acks_in_batch:
            yield from self._flush_acks(work)
        elif work.ack_at_ns is None:
            srtt, _ = self.rtt_ns(work.index, at_receiver=True)
            work.ack_at_ns = now_ns + min(srtt // 4, self.timing.ack_delay_most_ns)
            yield self._next_peer_look(work)

    def _flush_acks(self, work: PeerWork) -> Iterator[Action]:
        work.ack_at_ns = None
        if work.acks:
            yield self.say(work.index, control.Ack(tuple(dict.fromkeys(work.acks))))
            work.acks.clear()

    # ---------------------------------------------------------------- signs of life

    def on_peer_look(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self._work(event.peer)
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
        quiet_since = max(self.view.peer_state(work.index).heard_ns, work.began_ns)
        if now_ns - quiet_since < timing.alive_ns:
            work.fruitless = 0
            work.alive_at_ns = quiet_since + timing.alive_ns
            return
        if work.fruitless >= timing.fruitless_rounds:
            yield from self._give_up(work)
            return
        work.alive_at_ns = now_ns + min(timing.alive_ns << work.fruitless, timing.t_max_ns)
        work.fruitless += 1
        work.began_ns = max(work.began_ns, quiet_since)
        yield self.say(work.index, control.Probe(()))

    def _give_up(self, work: PeerWork) -> Iterator[Action]:
        work.alive_at_ns = None
        for send in list(work.sends.values()):
            yield from self.fail_send(work, send, ibv_wc_status.IBV_WC_RETRY_EXC_ERR)
        for receive in list(work.receives.values()):
            yield from self.fail_receive(work, receive, ibv_wc_status.IBV_WC_RETRY_EXC_ERR)

    # ---------------------------------------------------------------- not ready, too long

    def on_no_receive(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self._work(event.peer)
        work.turned_away[event.key] = event.id
        if len(work.turned_away) > _MOST_REMEMBERED:
            work.turned_away.popitem(last=False)
        return [self.say(work.index, control.Rnr(event.id, event.key))]

    def on_too_long(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        status = ibv_wc_status.IBV_WC_REM_INV_REQ_ERR
        refused = control.Refused(event.id, event.key, by_receiver=True, status=status)
        return [self.say(event.peer, refused)]

    def _receiver_not_ready(
        self, work: PeerWork, message: control.Rnr, now_ns: int
    ) -> Iterator[Action]:
        send = work.sends.get(message.id)
        if send is None or send.key != message.key:
            return
        limit = self.timing.rnr_retry
        if limit < 7 and send.not_ready >= limit:
            yield from self.fail_send(work, send, ibv_wc_status.IBV_WC_RNR_RETRY_EXC_ERR)
            return
        send.not_ready += 1
        yield Pause(send.handle, True)
        yield LookAt(send.handle, now_ns + self.timing.t_max_ns)

    def ask_if_ready(self, send: Sending) -> Action:
        """Probe for a paused send; the answer, a look or another RNR, tells whether to go on."""
        return self.say(send.peer, control.Probe(((send.id, send.key),)))

    # ---------------------------------------------------------------- control messages

    def on_control(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self._work(event.peer)
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
                if id_ >= work.next_id:
                    yield Refuse(f"acknowledges message {id_}, which was never sent")
                continue
            state = self.view.send_state(send.handle)
            if state is None or state.sent < state.count:
                yield Refuse(f"acknowledges message {id_}, which is not out yet")
                continue
            self._forget_send(work, send)
            yield from self.on_acknowledged(work, send)
            yield CompleteSend(send.handle, ibv_wc_status.IBV_WC_SUCCESS)

    def on_acknowledged(self, work: PeerWork, send: Sending) -> Actions:
        """A send is complete at the receiver; it is about to complete here."""
        return ()

    def _probed(self, work: PeerWork, message: control.Probe, now_ns: int) -> Iterator[Action]:
        done = []
        for id_, key in message.messages:
            receive = work.receives_by_key.get(key)
            if id_ in work.completed:
                done.append(id_)
            elif receive is not None and receive.id in (None, id_):
                yield from self.on_asked_for(work, receive, id_, now_ns)
            else:
                work.turned_away[key] = id_
                yield self.say(work.index, control.Rnr(id_, key))
        if done or not message.messages:
            yield self.say(work.index, control.Ack(tuple(done)))

    def _refused(self, work: PeerWork, message: control.Refused) -> Actions:
        try:
            status = ibv_wc_status(message.status)
        except ValueError:
            return [Refuse(f"unknown status {message.status}")]
        if status == ibv_wc_status.IBV_WC_SUCCESS:
            return [Refuse("refuses with success")]
        if message.by_receiver:
            send = work.sends.get(message.id)
            if send is not None and send.key == message.key:
                return self.fail_send(work, send, status)
            return ()
        receive = work.receives_by_key.get(message.key)
        if receive is not None and receive.id in (None, message.id):
            return self.fail_receive(work, receive, status)
        return ()

    def too_often(self, work: PeerWork, send: Sending) -> Iterator[Action]:
        """A packet was sent as often as may be: fail the message at both ends."""
        status = ibv_wc_status.IBV_WC_RETRY_EXC_ERR
        refused = control.Refused(send.id, send.key, by_receiver=False, status=status)
        yield self.say(work.index, refused)
        yield from self.fail_send(work, send, status)

    def resend(
        self, work: PeerWork, send: Sending, action: Resend, attempts_most: int
    ) -> Iterator[Action]:
        """Resend, unless a packet was sent as often as may be."""
        if attempts_most >= self.timing.most_attempts:
            yield from self.too_often(work, send)
            return
        send.out = False
        yield action
