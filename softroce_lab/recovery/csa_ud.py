# SPDX-License-Identifier: GPL-2.0-or-later
"""CSA-UD: communication-semantic-aware recovery over unreliable datagrams.

What is public of CSA-UD (arXiv 2606.20582) is its abstract: RDMA over UD, data transmission
decoupled from recovery, a loss-detection interval that adapts and uses the synchronisation
semantics of collectives, multipath with bitmap-guided reassembly. Messages, formula and timers
here are this project's (docs/protocols.md, section 1).

The receiver looks: the posted receive says what to expect, so a lost tail or a message lost whole
is found like any other hole. A look that finds holes sends their set; the sender resends what it
believes lost and says so when the last of it has left; that answer is the time to look again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab.errors import ibv_wc_status
from softroce_lab.recovery import control, intervals
from softroce_lab.recovery.api import (
    Action,
    Actions,
    Event,
    LookAt,
    Pause,
    ReceiveState,
    Refuse,
    Resend,
    SendState,
    UsePaths,
    View,
    missing_packets,
    packets_in,
)
from softroce_lab.recovery.control import Answer, Look, Verdict
from softroce_lab.recovery.datagram import DatagramPolicy
from softroce_lab.recovery.defaults import Timing
from softroce_lab.recovery.groups import Groups
from softroce_lab.recovery.options import Option
from softroce_lab.recovery.paths import PathHealth
from softroce_lab.recovery.work import PeerWork, Receiving, Sending

_STAMPS = 1 << 32
_ROUNDS = 1 << 16
_STAMP_HORIZON_NS = 1_000_000_000  # the newest stamp says little of now when it is older
_MOST_STRETCH = 8
_MOST_REORDER = 8
_MOST_DOUBLINGS = 32  # no interval is as long
_REORDER_RECOVERIES = 16  # without a resend in vain, and reordering is forgotten (RFC 8985, 6.2)


def stamped_ns(stamp_ns: int, now_ns: int) -> int:
    """The time of a 32-bit stamp: the one nearest to `now_ns`."""
    age_ns = (now_ns - stamp_ns) % _STAMPS
    return now_ns - (age_ns if age_ns < _STAMPS // 2 else age_ns - _STAMPS)


class CsaUd(DatagramPolicy):
    """Receiver-driven recovery with a dynamic interval."""

    name = "csa_ud"
    hears = DatagramPolicy.hears | {Look: "_looked_at", Answer: "_answered"}
    options = (
        Option(
            "interval",
            intervals.SYNC_AWARE,
            "rule for the time between two loss checks of a message",
            choices=tuple(intervals.names()),
        ),
    )

    def __init__(
        self, view: View, timing: Timing, options: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(view, timing, options)
        interval = str(self.values["interval"])
        self._rule = intervals.find(interval)
        self._groups = Groups() if interval == intervals.SYNC_AWARE else None
        self._health: dict[int, PathHealth] = {}
        self._window_packets = view.window_packets
        self.looks = 0
        self.early_looks = 0
        self.urgent_looks = 0

    # ---------------------------------------------------------------- receiver: when to look

    def interval_ns(self, work: PeerWork, receive: Receiving, missing: int) -> int:
        """From one look at a message to the next, so many packets of it being missing."""
        timing = self.timing
        straggles = self._groups is not None and self._groups.straggles(receive)
        state = self.view.peer_state(work.index)
        srtt, var = self.told_rtt_ns(state)
        wait = timing.srtt_weight * srtt + timing.rttvar_weight * var
        wait += state.lateness_ns  # the round trip of the slowest path
        if not straggles:
            wait *= work.stretch
        rate = state.receive_bytes_per_second
        if rate > 0:
            transfer = int(missing * self._chunk_bytes * 1e9 / rate)
        else:  # not measured yet: a window a round trip
            transfer = missing * srtt // self._window_packets
        return self.clamp(self._rule(timing, wait, transfer, straggles))

    def reorder_ns(self, work: PeerWork) -> int:
        """How much longer a packet may take than one sent after it: paths differ."""
        state = self.view.peer_state(work.index)
        srtt, var = self.told_rtt_ns(state)
        least = self.timing.reorder_least_ns
        usual = min(state.lateness_ns, self.timing.t_max_ns)
        return max(min(work.reorder * max(var // 2, least), srtt), least, usual)

    def _look_at(self, receive: Receiving, at_ns: int) -> LookAt:
        receive.look_at_ns = at_ns
        return LookAt(receive.handle, at_ns)

    def on_receive_posted(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        actions = list(super().on_receive_posted(event, now_ns))
        work = self.work_with(event.peer)
        receive = work.receives[event.handle]
        if self._groups is not None:
            self._groups.join(receive)
        if next(iter(work.in_order), None) == receive.handle:
            actions.append(self._look_at(receive, now_ns + self.timing.first_look_ns))
        return actions

    def on_first_packet(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        if receive is None:
            return super().on_first_packet(event, now_ns)
        overtaken = work.overtaken_by(receive)
        work.open(receive, event.id, event.count)
        look_ns = now_ns + self.interval_ns(work, receive, receive.count)
        actions: list[Action] = [self._look_at(receive, look_ns)]
        # A message begins when the one before it is out: the tails of those are here, or lost.
        for other in work.through_before(event.id):
            actions.append(self._look_soon(work, other, now_ns))
        # Messages begin in the order they were posted, or one of them was lost whole.
        for other in overtaken:
            look_ns = now_ns + self.interval_ns(work, other, 0)
            actions.append(self._look_at(other, look_ns))
        if not overtaken and work.in_order:
            following = next(iter(work.in_order.values()))
            actions.append(self._look_at(following, now_ns + self.timing.t_max_ns))
        return actions

    def on_tail_seen(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        if receive is None or receive.tail_due:
            return ()
        work.tail_is_due(receive)
        return (self._look_soon(work, receive, now_ns),)

    def _look_soon(self, work: PeerWork, receive: Receiving, now_ns: int) -> Action:
        """Look once what was sent up to now has had time to arrive over any path."""
        receive.echo_ns = self._newest_stamp_ns(receive.peer, now_ns)
        wait_ns = self.backed_off(self.reorder_ns(work), receive.barren)
        return self._look_at(receive, now_ns + wait_ns)

    def _newest_stamp_ns(self, peer: int, now_ns: int) -> int | None:
        state = self.view.peer_state(peer)
        at_ns = state.newest_stamp_at_ns
        recent = at_ns >= 0 and now_ns - at_ns < _STAMP_HORIZON_NS
        return state.newest_stamp_ns if recent else None

    # ---------------------------------------------------------------- receiver: the step's others

    def on_receive_complete(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        actions = super().on_receive_complete(event, now_ns)
        if receive is None or self._groups is None:
            return actions
        stragglers = self._groups.leave(receive)
        return [*actions, *self._hurry(stragglers, now_ns)] if stragglers else actions

    def fail_receive(  # noqa: D102
        self, work: PeerWork, receive: Receiving, status: ibv_wc_status
    ) -> Actions:
        if self._groups is not None:
            self._groups.leave(receive)
        return super().fail_receive(work, receive, status)

    def _hurry(self, stragglers: list[Receiving], now_ns: int) -> list[Action]:
        """Most of a step is complete: look at the rest as soon as a round trip allows.

        But for those that wait for the peer's messages before them to begin.
        """
        actions: list[Action] = []
        for receive in stragglers:
            work = self.work_with(receive.peer)
            expected = receive.id is not None or next(iter(work.in_order), None) == receive.handle
            at_ns = now_ns + self.interval_ns(work, receive, 0)
            if expected and at_ns < receive.look_at_ns:
                actions.append(self._look_at(receive, at_ns))
        return actions

    # ---------------------------------------------------------------- receiver: a look

    def look_at_receive(  # noqa: D102
        self, work: PeerWork, receive: Receiving, now_ns: int
    ) -> list[Action]:
        state = self.view.receive_state(receive.handle)
        if state is None:
            return []
        if receive.id is None and work.has_begun(receive.key):
            # A look by key would ask for the packets of the message that has begun.
            return [self._look_at(receive, now_ns + self.timing.t_max_ns)]
        received = state.received
        settled = self._settled(work, receive, state, now_ns)
        receive.barren = 0 if received > receive.received else receive.barren + 1
        receive.received = received
        self._learn_reordering(work, receive, state)
        actions: list[Action] = []
        if state.first_missing < settled:
            missing = missing_packets(state)
            missing[settled:] = False
            actions += self._request(work, receive, missing, now_ns)
        receive.echo_ns = None
        interval_ns = self.interval_ns(work, receive, state.count - received)
        wait_ns = self.backed_off(interval_ns, receive.barren)
        actions.append(self._look_at(receive, now_ns + wait_ns))
        return actions

    def _settled(self, work: PeerWork, receive: Receiving, state: ReceiveState, now_ns: int) -> int:
        """Packets [0, this) have had time to arrive, over any path.

        All of them, unless the first pass still arrives: at the pace it had, or with half an RTT
        between. Then those are excepted that were sent, at this pace, while packets could be
        overtaken by the highest one.
        """
        received, highest = state.received, state.highest
        if received == 0 or receive.tail_due or highest + 1 == state.count:
            return state.count
        srtt, _ = self.rtt_ns(work.index, at_receiver=True)
        pace_ns = max((state.last_ns - state.first_ns) // max(received - 1, 1), 1)
        reorder_ns = self.reorder_ns(work)
        if now_ns - state.last_ns > max(srtt // 2, reorder_ns, 2 * pace_ns):
            return state.count
        return max(highest - reorder_ns // pace_ns, 0)

    def _learn_reordering(self, work: PeerWork, receive: Receiving, state: ReceiveState) -> None:
        """What comes again after it was asked for was late, and not lost: wait longer.

        As RACK adapts its reordering window (RFC 8985, section 6.2, step 4).
        """
        if receive.round and state.duplicates > receive.duplicates:
            self._was_reordered(work)
        receive.duplicates = state.duplicates

    def _was_reordered(self, work: PeerWork) -> None:
        work.reorder = min(2 * work.reorder, _MOST_REORDER)
        work.recoveries = 0

    def on_late_packet(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        self._was_reordered(self.work_with(event.peer))
        return super().on_late_packet(event, now_ns)

    def _request(
        self, work: PeerWork, receive: Receiving, missing: npt.NDArray[np.bool_], now_ns: int
    ) -> list[Action]:
        self.looks += 1
        receive.round += 1
        receive.answered = False
        receive.asked_ns = now_ns
        work.recoveries += 1
        if work.recoveries >= _REORDER_RECOVERIES:
            work.reorder, work.recoveries = 1, 0
        echo = receive.echo_ns
        if echo is None:
            newest = self._newest_stamp_ns(work.index, now_ns)
            echo = None if newest is None else (newest - self.reorder_ns(work)) % _STAMPS
        wanted = None if receive.id is None else control.packet_set(missing)
        urgent = self._groups is not None and self._groups.straggles(receive)
        self.urgent_looks += urgent
        look = Look(receive.id, receive.key, receive.round, echo, wanted, urgent)
        return self._say_twice(work, look)

    def _say_twice(self, work: PeerWork, message: control.Message) -> list[Action]:
        """On two paths: the loss of a small packet would cost a round, and a round the tail."""
        said = self.say(work.index, message)
        return [said, said]

    def on_asked_for(  # noqa: D102
        self, work: PeerWork, receive: Receiving, id_: int, now_ns: int
    ) -> Actions:
        asked = self._asked_lately(work, receive, now_ns)
        return () if asked else self.look_at_receive(work, receive, now_ns)

    def _asked_lately(self, work: PeerWork, receive: Receiving, now_ns: int) -> bool:
        """Whether the answer to the last look, or what it speaks of, may still be on its way."""
        if receive.asked_ns < 0:
            return False
        srtt, var = self.rtt_ns(work.index, at_receiver=True)
        pause_ns = self.reorder_ns(work) if receive.answered else srtt + var
        return now_ns - receive.asked_ns < self.backed_off(pause_ns, receive.barren)

    def _unbegun_ns(self, receive: Receiving) -> int:
        """T_max; doubling, up to a sign of life's silence: who begins, and is not heard, asks."""
        most_ns = max(self.timing.t_max_ns, self.timing.alive_ns)
        doublings = min(max(receive.barren - 1, 0), _MOST_DOUBLINGS)
        return min(self.timing.t_max_ns << doublings, most_ns)

    def _answered(self, work: PeerWork, answer: Answer, now_ns: int) -> list[Action]:
        receive = work.receive_of(answer.id, answer.key)
        if receive is None or receive.answered or answer.round != receive.round % _ROUNDS:
            return []
        receive.answered = True
        if answer.verdict == Verdict.NOT_STARTED:
            return [self._look_at(receive, now_ns + self._unbegun_ns(receive))]
        if answer.verdict == Verdict.ON_THE_WAY:
            self.early_looks += 1
            work.stretch = min(work.stretch * 2, _MOST_STRETCH)
            if answer.packets == 0:  # nor sent: there is nothing to look for before the time set
                return []
        else:
            work.stretch = max(work.stretch // 2, 1)
        # The answer left behind the packets that it speaks of.
        return [self._look_soon(work, receive, now_ns)]

    # ---------------------------------------------------------------- sender

    def _looked_at(self, work: PeerWork, look: Look, now_ns: int) -> list[Action]:
        if look.id is None:
            send = work.sends_by_key.get(look.key)
        else:
            send = work.sends.get(look.id)
            if send is None or send.key != look.key:
                return [self.refuse(work, look.id, look.key)]
        state = None if send is None else self.view.send_state(send.handle)
        if send is None or state is None:
            return self._answer(work, look, 0, Verdict.NOT_STARTED)
        heard = send.look_round
        if heard is not None and not 0 < (look.round - heard) % _ROUNDS < _ROUNDS // 2:
            return []  # said twice, or overtaken by a later one
        send.look_round = look.round
        wanted = self._wanted(look, state)
        if wanted is None:
            return [Refuse("a look asks for packets beyond the message")]
        actions: list[Action] = [Pause(send.handle, False)] if state.paused else []
        if state.sent == 0:
            return actions + self._answer(work, look, 0, Verdict.NOT_STARTED)
        return actions + self._resend_lost(work, send, state, look, wanted, now_ns)

    def _resend_lost(
        self,
        work: PeerWork,
        send: Sending,
        state: SendState,
        look: Look,
        wanted: npt.NDArray[np.uint32],
        now_ns: int,
    ) -> list[Action]:
        waiting = packets_in(state.waiting, state.count)[wanted]
        asked = wanted[~waiting]
        lost = asked[self._is_lost(work, look, state.sent_ns[asked], now_ns)]
        resent = lost.size + int(waiting.sum())
        if resent == 0:
            return self._answer(work, look, send.id, Verdict.ON_THE_WAY, int(wanted.size))
        send.answer = (look.round, resent)
        if lost.size == 0:
            return []
        action = Resend(send.handle, lost, look.urgent)
        return [
            *self._blame_paths(work, state.paths[lost]),
            *self.resend(work, send, action, int(state.attempts[lost].max()), now_ns),
        ]

    @staticmethod
    def _wanted(look: Look, state: SendState) -> npt.NDArray[np.uint32] | None:
        """The packets asked for that were sent; None: there are no such packets."""
        if look.missing is None:
            return np.arange(state.sent, dtype=np.uint32)
        if look.missing.base + len(look.missing.bits) > state.count:
            return None
        wanted = look.missing.indices()
        return wanted[wanted < state.sent]

    def _is_lost(
        self, work: PeerWork, look: Look, sent_ns: npt.NDArray[np.int64], now_ns: int
    ) -> npt.NDArray[np.bool_]:
        """Which of the packets that are missed are lost, not just late.

        Those that the receiver has given up by the stamps it has seen since, and those sent
        longer ago than a round trip takes.
        """
        srtt, var = self.rtt_ns(work.index)
        lost = now_ns - sent_ns > srtt + self.timing.lost_rttvar_weight * var
        if look.echo_stamp_ns is not None:
            lost |= sent_ns <= stamped_ns(look.echo_stamp_ns, now_ns)
        return lost

    def _answer(
        self, work: PeerWork, look: Look, id_: int, verdict: Verdict, packets: int = 0
    ) -> list[Action]:
        return self._say_twice(work, Answer(id_, look.key, look.round, verdict, packets))

    def on_sent(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        send = work.sends.get(event.id)
        if send is None or send.handle != event.handle:
            return ()
        send.out = True
        send.out_ns = now_ns
        send.reported = self.view.peer_state(work.index).reported_packets
        send.barren = 0
        patience = LookAt(send.handle, now_ns + self._patience_ns(work))
        if send.answer is None:
            return (patience,)
        round_, packets = send.answer
        send.answer = None
        answer = Answer(send.id, send.key, round_, Verdict.RESENT, packets)
        return [*self._say_twice(work, answer), patience]

    def _patience_ns(self, work: PeerWork) -> int:
        """How long a sender whose packets are out waits for a word before it asks."""
        srtt, var = self.rtt_ns(work.index)
        return self.clamp(2 * srtt + self.timing.rttvar_weight * var)

    def look_at_send(  # noqa: D102
        self, work: PeerWork, send: Sending, now_ns: int
    ) -> list[Action]:
        if self._still_arrives(work, send):
            wait_ns = max(self._patience_ns(work), now_ns - send.out_ns)
            return [LookAt(send.handle, now_ns + wait_ns)]
        send.barren += 1
        wait_ns = self.backed_off(2 * self._patience_ns(work), send.barren)
        return [self.ask_if_ready(send), LookAt(send.handle, now_ns + wait_ns)]

    def _still_arrives(self, work: PeerWork, send: Sending) -> bool:
        """Whether the peer has reported packets since it was last looked at, of this message.

        Where another one has followed, what is reported may be of that.
        """
        if not send.out or send.not_ready or send.id != work.newest_id:
            return False
        before, send.reported = send.reported, self.view.peer_state(work.index).reported_packets
        return send.reported != before

    # ---------------------------------------------------------------- paths

    def _blame_paths(self, work: PeerWork, paths: npt.NDArray[np.uint8]) -> list[Action]:
        health = self._health.get(work.index)
        if health is None:
            health = self._health[work.index] = PathHealth(self.view.paths)
        health.note_sent(self.view.sent_on_paths(work.index))
        health.note_lost(paths)
        return self._reweigh(work, health)

    @staticmethod
    def _reweigh(work: PeerWork, health: PathHealth) -> list[Action]:
        shares = health.reweigh()
        return [] if shares is None else [UsePaths(work.index, shares)]

    def on_acknowledged(self, work: PeerWork, send: Sending) -> Actions:  # noqa: D102
        health = self._health.get(work.index)
        if health is None or not health.suspects:
            return ()
        health.note_sent(self.view.sent_on_paths(work.index))
        return self._reweigh(work, health)

    def summary(self) -> dict[str, Any]:  # noqa: D102
        return {
            **super().summary(),
            "looks": self.looks,
            "early_looks": self.early_looks,
            "urgent_looks": self.urgent_looks,
            "path_shares": {peer: health.shares for peer, health in self._health.items()},
        }
