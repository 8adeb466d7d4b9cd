# SPDX-License-Identifier: GPL-2.0-or-later
"""CSA-UD: communication-semantic-aware recovery over unreliable datagrams.

What is public of CSA-UD (arXiv 2606.20582) is its abstract: RDMA over UD, data transmission
decoupled from recovery, a loss-detection interval that adapts and uses the synchronisation
semantics of collectives, multipath with bitmap-guided reassembly. Messages, formula and timers
here are this project's (docs/protocols.md, section 1).

The receiver checks for loss when its timer ends. It knows what to expect from the posted receive,
so it finds a lost tail, or a message lost whole, like any other missing packet. A loss check that
finds missing packets sends a NACK. The sender retransmits what it believes lost; its NACK response
follows the last retransmission. The response's arrival triggers the next loss check.
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
    Pause,
    ReceiveState,
    Refuse,
    Retransmit,
    SendState,
    SetTimer,
    UsePaths,
    View,
    missing_packets,
    packets_in,
)
from softroce_lab.recovery.control import Nack, NackResponse, NackStatus
from softroce_lab.recovery.datagram import DatagramPolicy
from softroce_lab.recovery.defaults import Timing
from softroce_lab.recovery.groups import Groups
from softroce_lab.recovery.options import Option
from softroce_lab.recovery.paths import PathHealth
from softroce_lab.recovery.work import PeerWork, Receiving, Sending

_STAMPS = 1 << 32
_ROUNDS = 1 << 16
_STAMP_HORIZON_NS = 1_000_000_000  # an older stamp proves little of the present
_MOST_BACKOFF_FACTOR = 8
_REO_WND_MULT_MOST = 8
_MOST_DOUBLINGS = 32  # no interval is as long
# without a spurious retransmission, and reordering is forgotten (RFC 8985, 6.2)
_REO_WND_PERSIST = 16


def stamped_ns(stamp_ns: int, now_ns: int) -> int:
    """The time of a 32-bit stamp: the one nearest to `now_ns`."""
    age_ns = (now_ns - stamp_ns) % _STAMPS
    return now_ns - (age_ns if age_ns < _STAMPS // 2 else age_ns - _STAMPS)


class CsaUd(DatagramPolicy):
    """Receiver-driven recovery with a dynamic interval."""

    name = "csa_ud"
    handlers = DatagramPolicy.handlers | {Nack: "_on_nack", NackResponse: "_on_nack_response"}
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
        self.nacks = 0
        self.premature_nacks = 0
        self.urgent_nacks = 0

    # ---------------------------------------------------------------- receiver: when to check

    def interval_ns(self, work: PeerWork, receive: Receiving, missing: int) -> int:
        """From one loss check of a message to the next, with this many packets missing."""
        timing = self.timing
        straggles = self._groups is not None and self._groups.straggles(receive)
        state = self.view.peer_state(work.index)
        srtt, var = self.reported_rtt_ns(state)
        wait = timing.srtt_weight * srtt + timing.rttvar_weight * var
        wait += state.reordering_extent_ns  # the round trip of the slowest path
        if not straggles:
            wait *= work.backoff_factor
        rate = state.receive_bytes_per_second
        if rate > 0:
            transfer = int(missing * self._chunk_bytes * 1e9 / rate)
        else:  # not measured yet: a window a round trip
            transfer = missing * srtt // self._window_packets
        return self.clamp(self._rule(timing, wait, transfer, straggles))

    def reordering_window_ns(self, work: PeerWork) -> int:
        """How much longer a packet may take than one sent after it: paths differ."""
        state = self.view.peer_state(work.index)
        srtt, var = self.reported_rtt_ns(state)
        least = self.timing.reordering_window_least_ns
        usual = min(state.reordering_extent_ns, self.timing.t_max_ns)
        return max(min(work.reo_wnd_mult * max(var // 2, least), srtt), least, usual)

    def _set_timer(self, receive: Receiving, at_ns: int) -> SetTimer:
        receive.timer_at_ns = at_ns
        return SetTimer(receive.handle, at_ns)

    def on_receive_posted(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        actions = list(super().on_receive_posted(event, now_ns))
        work = self.work_with(event.peer)
        receive = work.receives[event.handle]
        if self._groups is not None:
            self._groups.join(receive)
        if next(iter(work.in_order), None) == receive.handle:
            actions.append(self._set_timer(receive, now_ns + self.timing.first_check_ns))
        return actions

    def on_first_packet(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        if receive is None:
            return super().on_first_packet(event, now_ns)
        overtaken = work.overtaken_by(receive)
        work.open(receive, event.id, event.count)
        check_at_ns = now_ns + self.interval_ns(work, receive, receive.count)
        actions: list[Action] = [self._set_timer(receive, check_at_ns)]
        # A message begins when the one before it is out: the tails of those are here, or lost.
        for other in work.through_before(event.id):
            actions.append(self._set_reordering_timer(work, other, now_ns))
        # Messages begin in the order they were posted, or one of them was lost whole.
        for other in overtaken:
            check_at_ns = now_ns + self.interval_ns(work, other, 0)
            actions.append(self._set_timer(other, check_at_ns))
        if not overtaken and work.in_order:
            following = next(iter(work.in_order.values()))
            actions.append(self._set_timer(following, now_ns + self.timing.t_max_ns))
        return actions

    def on_tail_seen(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        if receive is None or receive.tail_due:
            return ()
        work.tail_is_due(receive)
        return (self._set_reordering_timer(work, receive, now_ns),)

    def _set_reordering_timer(self, work: PeerWork, receive: Receiving, now_ns: int) -> Action:
        """Check once what was sent up to now has had time to arrive over any path."""
        receive.echo_ns = self._newest_stamp_ns(receive.peer, now_ns)
        wait_ns = self.backed_off(
            self.reordering_window_ns(work), receive.timeouts_without_progress
        )
        return self._set_timer(receive, now_ns + wait_ns)

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
        """Most of a step is complete: check the rest as soon as a round trip allows.

        But for those that wait for the peer's messages before them to begin.
        """
        actions: list[Action] = []
        for receive in stragglers:
            work = self.work_with(receive.peer)
            expected = receive.id is not None or next(iter(work.in_order), None) == receive.handle
            at_ns = now_ns + self.interval_ns(work, receive, 0)
            if expected and at_ns < receive.timer_at_ns:
                actions.append(self._set_timer(receive, at_ns))
        return actions

    # ---------------------------------------------------------------- receiver: a loss check

    def check_receive(  # noqa: D102
        self, work: PeerWork, receive: Receiving, now_ns: int
    ) -> list[Action]:
        state = self.view.receive_state(receive.handle)
        if state is None:
            return []
        if receive.id is None and work.has_begun(receive.key):
            # A NACK by key would ask for the packets of the message that has begun.
            return [self._set_timer(receive, now_ns + self.timing.t_max_ns)]
        received = state.received
        settled = self._settled(work, receive, state, now_ns)
        receive.timeouts_without_progress = (
            0 if received > receive.received else receive.timeouts_without_progress + 1
        )
        receive.received = received
        self._adapt_reordering_window(work, receive, state)
        actions: list[Action] = []
        if state.first_missing < settled:
            missing = missing_packets(state)
            missing[settled:] = False
            actions += self._request(work, receive, missing, now_ns)
        receive.echo_ns = None
        interval_ns = self.interval_ns(work, receive, state.count - received)
        wait_ns = self.backed_off(interval_ns, receive.timeouts_without_progress)
        actions.append(self._set_timer(receive, now_ns + wait_ns))
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
        reordering_window_ns = self.reordering_window_ns(work)
        if now_ns - state.last_ns > max(srtt // 2, reordering_window_ns, 2 * pace_ns):
            return state.count
        return max(highest - reordering_window_ns // pace_ns, 0)

    def _adapt_reordering_window(
        self, work: PeerWork, receive: Receiving, state: ReceiveState
    ) -> None:
        """What comes again after it was asked for was late, and not lost: wait longer.

        As RACK adapts its reordering window (RFC 8985, section 6.2, step 4).
        """
        if receive.round and state.duplicates > receive.duplicates:
            self._widen_reordering_window(work)
        receive.duplicates = state.duplicates

    def _widen_reordering_window(self, work: PeerWork) -> None:
        work.reo_wnd_mult = min(2 * work.reo_wnd_mult, _REO_WND_MULT_MOST)
        work.recoveries = 0

    def on_late_packet(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        self._widen_reordering_window(self.work_with(event.peer))
        return super().on_late_packet(event, now_ns)

    def _request(
        self, work: PeerWork, receive: Receiving, missing: npt.NDArray[np.bool_], now_ns: int
    ) -> list[Action]:
        self.nacks += 1
        receive.round += 1
        receive.responded = False
        receive.asked_ns = now_ns
        work.recoveries += 1
        if work.recoveries >= _REO_WND_PERSIST:
            work.reo_wnd_mult, work.recoveries = 1, 0
        echo = receive.echo_ns
        if echo is None:
            newest = self._newest_stamp_ns(work.index, now_ns)
            echo = None if newest is None else (newest - self.reordering_window_ns(work)) % _STAMPS
        wanted = None if receive.id is None else control.packet_set(missing)
        urgent = self._groups is not None and self._groups.straggles(receive)
        self.urgent_nacks += urgent
        nack = Nack(receive.id, receive.key, receive.round, echo, wanted, urgent)
        return self._send_redundantly(work, nack)

    def _send_redundantly(self, work: PeerWork, message: control.Message) -> list[Action]:
        """On two paths: the loss of a small packet would cost a round, and a round the tail."""
        said = self.send_control(work.index, message)
        return [said, said]

    def on_status_request(  # noqa: D102
        self, work: PeerWork, receive: Receiving, id_: int, now_ns: int
    ) -> Actions:
        asked = self._was_nacked_recently(work, receive, now_ns)
        return () if asked else self.check_receive(work, receive, now_ns)

    def _was_nacked_recently(self, work: PeerWork, receive: Receiving, now_ns: int) -> bool:
        """Whether the answer to the last nack, or what it speaks of, may still be on its way."""
        if receive.asked_ns < 0:
            return False
        srtt, var = self.rtt_ns(work.index, at_receiver=True)
        pause_ns = self.reordering_window_ns(work) if receive.responded else srtt + var
        return now_ns - receive.asked_ns < self.backed_off(
            pause_ns, receive.timeouts_without_progress
        )

    def _not_started_ns(self, receive: Receiving) -> int:
        """T_max; doubling, up to a sign of life's silence: who begins, and is not heard, asks."""
        most_ns = max(self.timing.t_max_ns, self.timing.keepalive_interval_ns)
        doublings = min(max(receive.timeouts_without_progress - 1, 0), _MOST_DOUBLINGS)
        return min(self.timing.t_max_ns << doublings, most_ns)

    def _on_nack_response(
        self, work: PeerWork, response: NackResponse, now_ns: int
    ) -> list[Action]:
        receive = work.receive_of(response.id, response.key)
        if receive is None or receive.responded or response.round != receive.round % _ROUNDS:
            return []
        receive.responded = True
        if response.status == NackStatus.NOT_STARTED:
            return [self._set_timer(receive, now_ns + self._not_started_ns(receive))]
        if response.status == NackStatus.IN_FLIGHT:
            self.premature_nacks += 1
            work.backoff_factor = min(work.backoff_factor * 2, _MOST_BACKOFF_FACTOR)
            if response.packets == 0:  # nor sent: nothing can be lost before the time set
                return []
        else:
            work.backoff_factor = max(work.backoff_factor // 2, 1)
        # The answer left behind the packets that it speaks of.
        return [self._set_reordering_timer(work, receive, now_ns)]

    # ---------------------------------------------------------------- sender

    def _on_nack(self, work: PeerWork, nack: Nack, now_ns: int) -> list[Action]:
        if nack.id is None:
            send = work.sends_by_key.get(nack.key)
        else:
            send = work.sends.get(nack.id)
            if send is None or send.key != nack.key:
                return [self.refuse(work, nack.id, nack.key)]
        state = None if send is None else self.view.send_state(send.handle)
        if send is None or state is None:
            return self._respond(work, nack, 0, NackStatus.NOT_STARTED)
        heard = send.nack_round
        if heard is not None and not 0 < (nack.round - heard) % _ROUNDS < _ROUNDS // 2:
            return []  # sent redundantly, or overtaken by a later one
        send.nack_round = nack.round
        wanted = self._wanted(nack, state)
        if wanted is None:
            return [Refuse("a NACK asks for packets beyond the message")]
        actions: list[Action] = [Pause(send.handle, False)] if state.paused else []
        if state.sent == 0:
            return actions + self._respond(work, nack, 0, NackStatus.NOT_STARTED)
        return actions + self._retransmit_lost(work, send, state, nack, wanted, now_ns)

    def _retransmit_lost(
        self,
        work: PeerWork,
        send: Sending,
        state: SendState,
        nack: Nack,
        wanted: npt.NDArray[np.uint32],
        now_ns: int,
    ) -> list[Action]:
        waiting = packets_in(state.waiting, state.count)[wanted]
        asked = wanted[~waiting]
        lost = asked[self._is_lost(work, nack, state.sent_ns[asked], now_ns)]
        retransmitted = lost.size + int(waiting.sum())
        if retransmitted == 0:
            return self._respond(work, nack, send.id, NackStatus.IN_FLIGHT, int(wanted.size))
        send.nack_response = (nack.round, retransmitted)
        if lost.size == 0:
            return []
        action = Retransmit(send.handle, lost, nack.urgent)
        return [
            *self._attribute_losses(work, state.paths[lost]),
            *self.retransmit(work, send, action, int(state.attempts[lost].max()), now_ns),
        ]

    @staticmethod
    def _wanted(nack: Nack, state: SendState) -> npt.NDArray[np.uint32] | None:
        """The packets asked for that were sent; None: there are no such packets."""
        if nack.missing is None:
            return np.arange(state.sent, dtype=np.uint32)
        if nack.missing.base + len(nack.missing.bits) > state.count:
            return None
        wanted = nack.missing.indices()
        return wanted[wanted < state.sent]

    def _is_lost(
        self, work: PeerWork, nack: Nack, sent_ns: npt.NDArray[np.int64], now_ns: int
    ) -> npt.NDArray[np.bool_]:
        """Which of the packets that are missed are lost, not just late.

        Those that the receiver has given up by the stamps it has seen since, and those sent
        longer ago than a round trip takes.
        """
        srtt, var = self.rtt_ns(work.index)
        lost = now_ns - sent_ns > srtt + self.timing.lost_rttvar_weight * var
        if nack.echo_stamp_ns is not None:
            lost |= sent_ns <= stamped_ns(nack.echo_stamp_ns, now_ns)
        return lost

    def _respond(
        self, work: PeerWork, nack: Nack, id_: int, status: NackStatus, packets: int = 0
    ) -> list[Action]:
        return self._send_redundantly(
            work, NackResponse(id_, nack.key, nack.round, status, packets)
        )

    def on_sent(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        send = work.sends.get(event.id)
        if send is None or send.handle != event.handle:
            return ()
        send.out = True
        send.out_ns = now_ns
        send.reported = self.view.peer_state(work.index).reported_packets
        send.timeouts_without_progress = 0
        patience = SetTimer(send.handle, now_ns + self._patience_ns(work))
        if send.nack_response is None:
            return (patience,)
        round_, packets = send.nack_response
        send.nack_response = None
        response = NackResponse(send.id, send.key, round_, NackStatus.RETRANSMITTED, packets)
        return [*self._send_redundantly(work, response), patience]

    def _patience_ns(self, work: PeerWork) -> int:
        """How long a sender whose packets are out waits for a word before it asks."""
        srtt, var = self.rtt_ns(work.index)
        return self.clamp(2 * srtt + self.timing.rttvar_weight * var)

    def check_send(  # noqa: D102
        self, work: PeerWork, send: Sending, now_ns: int
    ) -> list[Action]:
        if self._still_arrives(work, send):
            wait_ns = max(self._patience_ns(work), now_ns - send.out_ns)
            return [SetTimer(send.handle, now_ns + wait_ns)]
        send.timeouts_without_progress += 1
        wait_ns = self.backed_off(2 * self._patience_ns(work), send.timeouts_without_progress)
        return [self.probe_receiver(send), SetTimer(send.handle, now_ns + wait_ns)]

    def _still_arrives(self, work: PeerWork, send: Sending) -> bool:
        """Whether the peer has reported packets since it was last looked at, of this message.

        Where another one has followed, what is reported may be of that.
        """
        if not send.out or send.rnr_naks or send.id != work.newest_id:
            return False
        before, send.reported = send.reported, self.view.peer_state(work.index).reported_packets
        return send.reported != before

    # ---------------------------------------------------------------- paths

    def _attribute_losses(self, work: PeerWork, paths: npt.NDArray[np.uint8]) -> list[Action]:
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
            "nacks": self.nacks,
            "premature_nacks": self.premature_nacks,
            "urgent_nacks": self.urgent_nacks,
            "path_shares": {peer: health.shares for peer, health in self._health.items()},
        }
