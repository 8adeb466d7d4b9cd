# SPDX-License-Identifier: GPL-2.0-or-later
"""CSA-UD: communication-semantic-aware recovery over unreliable datagrams.

What is public of CSA-UD (arXiv 2606.20582) is its abstract: RDMA over UD, data transmission
decoupled from recovery, a loss-detection interval that adapts and uses the synchronisation
semantics of collectives, multipath with bitmap-guided reassembly. Messages, formula and timers
here are this project's (docs/protocols.md, section 1).

The engine numbers the packets of each path and probes the paths behind the last one, so that the
receiver finds a loss with the next packet on the path. Its NACK lets the sender's engine find the
packets; this policy decides what to retransmit. Timers are left for silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab.errors import ibv_wc_status
from softroce_lab.recovery import control, intervals
from softroce_lab.recovery.api import (
    LOST_PACKET,
    Action,
    Actions,
    Event,
    MovePath,
    Nack,
    Pause,
    Retransmit,
    SetTimer,
    View,
)
from softroce_lab.recovery.defaults import Timing
from softroce_lab.recovery.groups import Groups
from softroce_lab.recovery.options import Option
from softroce_lab.recovery.paths import PathHealth
from softroce_lab.recovery.session.session import Session
from softroce_lab.recovery.work import PeerWork, Receiving, Sending

_NOTHING = control.packet_set(np.zeros(0, dtype=np.bool_))
_HEDGED_AFTER = 2  # transmissions of a packet that were lost
_IN_STEP_AFTER = 8  # the same: losses may be in step with what a round of recovery sends
_IN_STEP_PACKETS = 4  # of a message: more fill a round by themselves, and copies would be a storm
_HEDGE_SHARE = 0.01  # of the packets of a peer's messages


# Parts of recovery that the engine carries out, by bits of enum Mechanism
# (native/engine/striped/message_config.hpp).
_MECHANISMS = {
    1: Option("path_numbers", True, "losses are found by numbers on paths, else by timers"),
    2: Option("probes", True, "a probe behind the last packet shows what is lost of the tail"),
    4: Option("probe_repeats", True, "a probe that nothing answers is repeated"),
    8: Option("joined_reports", True, "receiver reports go with acknowledgements and NACKs"),
    16: Option(
        "reordering_window", True, "the reordering window of a path adapts, else it stays 0"
    ),
    32: Option("port_trials", True, "a path that fell silent tries its first source port again"),
    64: Option("path_choice", True, "a packet takes the path with the fewest packets on their way"),
}


class CsaUd(Session):
    """Losses found by numbers on paths; a dynamic interval for silence."""

    name = "csa_ud"
    path_probes = True
    options = (
        *_MECHANISMS.values(),
        Option(
            "immediate_acks",
            True,
            "a complete message is acknowledged at once, else after SRTT / 4 with others",
        ),
        Option("path_health", True, "a path that loses more than others gets another source port"),
        Option(
            "hedging",
            False,
            "a packet lost twice is retransmitted on two paths, up to 1 % of the packets",
        ),
        Option(
            "interval",
            intervals.LINEAR,
            "rule for the time between two loss checks of a message",
            choices=tuple(intervals.names()),
        ),
    )

    @classmethod
    def engine(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        return {"without": sum(bit for bit, part in _MECHANISMS.items() if not options[part.name])}

    def __init__(
        self, view: View, timing: Timing, options: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(view, timing, options)
        interval = str(self.values["interval"])
        self._rule = intervals.find(interval)
        self._groups = Groups() if interval == intervals.SYNC_AWARE else None
        self._health: dict[int, PathHealth] = {}
        self._window_packets = view.window_packets
        self._acks_due: dict[int, None] = {}  # peers
        self._sent_packets = self._hedged_packets = 0
        self.loss_checks = 0
        self.lost = np.zeros(3, dtype=np.int64)  # packets, by reason

    # ---------------------------------------------------------------- receiver: silence

    def interval_ns(self, work: PeerWork, receive: Receiving, missing: int) -> int:
        """From one loss check of a message to the next, with this many packets missing."""
        timing = self.timing
        straggles = self._groups is not None and self._groups.straggles(receive)
        state = self.view.peer_state(work.index)
        srtt, var = self.reported_rtt_ns(state)
        wait = timing.srtt_weight * srtt + timing.rttvar_weight * var
        rate = state.receive_bytes_per_second
        if rate > 0:
            transfer = int(missing * self._chunk_bytes * 1e9 / rate)
        else:  # not measured yet: a window a round trip
            transfer = missing * srtt // self._window_packets
        return self.clamp(self._rule(timing, wait, transfer, straggles))

    def _set_timer(self, receive: Receiving, at_ns: int) -> SetTimer:
        receive.timer_at_ns = at_ns
        return SetTimer(receive.handle, at_ns)

    def on_receive_posted(self, event: Event, now_ns: int) -> Actions:
        actions = super().on_receive_posted(event, now_ns)
        if self._groups is not None:
            self._groups.join(self.work_with(event.peer).receives[event.handle])
        return actions

    def on_first_packet(self, event: Event, now_ns: int) -> Actions:
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        if receive is None:
            return super().on_first_packet(event, now_ns)
        work.open(receive, event.id, event.count)
        if event.count == 1:
            return ()
        check_at_ns = now_ns + self.interval_ns(work, receive, receive.count)
        return (self._set_timer(receive, check_at_ns),)

    def check_receive(self, work: PeerWork, receive: Receiving, now_ns: int) -> list[Action]:
        state = self.view.receive_state(receive.handle)
        if state is None:
            return []
        arrived = state.received + state.duplicates
        progress = arrived > receive.received
        receive.received = arrived
        receive.timeouts_without_progress = 0 if progress else receive.timeouts_without_progress + 1
        interval_ns = self.interval_ns(work, receive, state.count - state.received)
        wait_ns = self.backed_off(interval_ns, receive.timeouts_without_progress)
        timer = self._set_timer(receive, now_ns + wait_ns)
        if now_ns - state.last_ns < interval_ns // 2:
            return [timer]  # it still arrives
        self.loss_checks += 1
        actions: list[Action] = [timer, Nack(work.index)]
        if receive.timeouts_without_progress > self.timing.eager_rounds and receive.id is not None:
            # The send may have failed, and its REFUSE may be lost.
            ask = control.Sack(receive.id, receive.key, _NOTHING)
            actions.append(self.send_control(work.index, ask))
        return actions

    def on_status_request(
        self, work: PeerWork, receive: Receiving, id_: int, now_ns: int
    ) -> Actions:
        # If nothing is lost, the NACK is no event, and a paused send learns from the SACK.
        missing = None if receive.id is None else _NOTHING
        sack = control.Sack(id_, receive.key, missing)
        return (self.send_control(work.index, sack), Nack(work.index))

    # ---------------------------------------------------------------- receiver: the step's others

    def on_receive_complete(self, event: Event, now_ns: int) -> Actions:
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        actions = super().on_receive_complete(event, now_ns)
        if receive is None or self._groups is None:
            return actions
        stragglers = self._groups.leave(receive)
        return [*actions, *self._hurry(stragglers, now_ns)] if stragglers else actions

    def fail_receive(self, work: PeerWork, receive: Receiving, status: ibv_wc_status) -> Actions:
        if self._groups is not None:
            self._groups.leave(receive)
        return super().fail_receive(work, receive, status)

    def _hurry(self, stragglers: list[Receiving], now_ns: int) -> list[Action]:
        """Most of a step is complete: check the rest that has begun within a round trip."""
        actions: list[Action] = []
        for receive in stragglers:
            at_ns = now_ns + self.interval_ns(self.work_with(receive.peer), receive, 0)
            if receive.id is not None and at_ns < receive.timer_at_ns:
                actions.append(self._set_timer(receive, at_ns))
        return actions

    # ---------------------------------------------------------------- acknowledgements

    def _acknowledge(self, work: PeerWork, id_: int, now_ns: int) -> list[Action]:
        """At once, with those of the same peer that complete in the same turn."""
        if self._acks_without_effect(work, id_) or not self.values["immediate_acks"]:
            return super()._acknowledge(work, id_, now_ns)
        work.acks[id_] = None
        if len(work.acks) >= self.timing.acks_in_batch:
            return self._flush_acks(work, now_ns)
        self._acks_due[work.index] = None
        return []

    def on_turn_end(self, now_ns: int) -> Actions:
        if not self._acks_due:
            return ()
        due, self._acks_due = self._acks_due, {}
        works = [self.work_with(peer) for peer in due]
        return [act for work in works if work.acks for act in self._flush_acks(work, now_ns)]

    # ---------------------------------------------------------------- sender

    def on_send_posted(self, event: Event, now_ns: int) -> Actions:
        self._sent_packets += event.count
        return super().on_send_posted(event, now_ns)

    def on_loss(self, event: Event, now_ns: int) -> Actions:
        work = self.work_with(event.peer)
        send = work.sends.get(event.id)
        if send is None or send.handle != event.handle:
            return ()
        lost = np.frombuffer(event.body, LOST_PACKET)
        self.lost += np.bincount(lost["reason"], minlength=len(self.lost))
        again = self._hedged(lost)
        first, *others = [
            Retransmit(send.handle, lost["index"][which], copies=copies)
            for which, copies in ((again, 2), (~again, 1))
            if which.any()
        ]
        state = self.view.send_progress(send.handle)
        resume = self._resume(work, send, now_ns) if state is not None and state.paused else []
        done = list(self.retransmit(work, send, first, int(lost["attempts"].max()), now_ns))
        return [
            *self._attribute_losses(work, lost["path"]),
            *resume,
            *done,
            *(others if any(each is first for each in done) else ()),
        ]

    def _hedged(self, lost: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Those of which two copies are sent: they were lost again, and are few.

        One that was lost many times in any case: where a packet and two probes are a round, a rule
        that takes every third packet takes all its copies.
        """
        again: npt.NDArray[np.bool_] = lost["attempts"] >= _HEDGED_AFTER
        most = _HEDGE_SHARE * self._sent_packets
        if not self.values["hedging"] or self._hedged_packets + int(again.sum()) > most:
            again = lost["attempts"] >= _IN_STEP_AFTER
            if np.count_nonzero(again) > _IN_STEP_PACKETS:
                again = np.zeros_like(again)
        self._hedged_packets += int(again.sum())
        return again

    def _resume(self, work: PeerWork, send: Sending, now_ns: int) -> list[Action]:
        """A paused send whose receive is posted by now goes on."""
        wake = SetTimer(send.handle, now_ns + self._patience_ns(work))
        return [Pause(send.handle, False), wake]

    def on_message(self, work: PeerWork, message: control.Message, now_ns: int) -> Actions:
        if not isinstance(message, control.Sack):
            return super().on_message(work, message, now_ns)
        send = work.sends.get(message.id)
        state = None if send is None else self.view.send_state(send.handle)
        if send is None or state is None or send.key != message.key:
            begun = message.missing is not None
            return [self.refuse(work, message.id, message.key)] if begun else ()
        resume = self._resume(work, send, now_ns) if state.paused else []
        if message.missing is not None:
            return resume  # the NACK beside it names what is missing
        # No packet has arrived. Of a paused send what was sent found no receive. Else the NACK
        # beside this names what is lost; it is not certain to have room for all messages.
        late_ns = now_ns - 2 * self._round_trip_ns(work)
        overdue = np.flatnonzero((state.attempts > 0) & ((state.sent_ns <= late_ns) | state.paused))
        if not overdue.size:
            return resume
        action = Retransmit(send.handle, overdue.astype(np.uint32))
        attempts = int(state.attempts[overdue].max())
        return [*resume, *self.retransmit(work, send, action, attempts, now_ns)]

    def on_sent(self, event: Event, now_ns: int) -> Actions:
        work = self.work_with(event.peer)
        send = work.sends.get(event.id)
        if send is None or send.handle != event.handle:
            return ()
        before, send.reported = send.reported, self.view.peer_state(work.index).reported_packets
        # Loss may be in step with a timer whose retransmissions it takes: then it waits longer.
        if not send.out or send.reported != before:
            send.timeouts_without_progress = 0
        send.out = True
        send.out_ns = now_ns
        wait_ns = self.backed_off(self._patience_ns(work), send.timeouts_without_progress)
        return (SetTimer(send.handle, now_ns + wait_ns),)

    def _patience_ns(self, work: PeerWork) -> int:
        """How long a sender whose packets are out waits for a response before it asks.

        Where the RTT is steady, SRTT + 4 RTTVAR would end as the acknowledgement comes.
        """
        srtt, var = self.rtt_ns(work.index)
        return self.clamp(max(2 * srtt + var, self._round_trip_ns(work)))

    def _round_trip_ns(self, work: PeerWork) -> int:
        """One that is rarely exceeded."""
        srtt, var = self.rtt_ns(work.index)
        return srtt + self.timing.lost_rttvar_weight * var

    def check_send(self, work: PeerWork, send: Sending, now_ns: int) -> list[Action]:
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
        if not self.values["path_health"]:
            return []
        health = self._health.get(work.index)
        if health is None:
            health = self._health[work.index] = PathHealth(self.view.paths)
        health.note_sent(self.view.sent_on_paths(work.index))
        health.note_lost(paths)
        return [MovePath(work.index, path) for path in health.leave()]

    def summary(self) -> dict[str, Any]:
        return {
            **super().summary(),
            "loss_checks": self.loss_checks,
            "lost_by_gap": int(self.lost[0]),
            "lost_by_probe": int(self.lost[1]),
            "lost_by_timer": int(self.lost[2]),
            "hedged": self._hedged_packets,
            "paths_left": {peer: health.left.tolist() for peer, health in self._health.items()},
        }
