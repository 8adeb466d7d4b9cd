# SPDX-License-Identifier: GPL-2.0-or-later
"""CSA-UD: communication-semantic-aware recovery over unreliable datagrams.

What is public of CSA-UD (arXiv 2606.20582) is its abstract: RDMA over UD, data transmission
decoupled from recovery, a loss-detection interval that adapts, multipath with bitmap-guided
reassembly. Messages, formula and timers here are this project's (docs/protocols.md, section 1).

The receiver looks: the posted receive says what to expect, so a lost tail or a message lost whole
is found like any other hole. A look that finds holes sends their set; the sender resends what it
believes lost and says so when the last of it has left; that answer is the time to look again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab.recovery import control
from softroce_lab.recovery.api import (
    Action,
    Actions,
    Event,
    Key,
    LookAt,
    Pause,
    ReceiveState,
    Refuse,
    Resend,
    SendState,
    UsePaths,
    View,
    missing_packets,
)
from softroce_lab.recovery.control import Answer, Look, Verdict
from softroce_lab.recovery.datagram import DatagramPolicy
from softroce_lab.recovery.defaults import Timing
from softroce_lab.recovery.paths import PathHealth
from softroce_lab.recovery.work import PeerWork, Receiving, Sending, is_newer

_STAMPS = 1 << 32
_ROUNDS = 1 << 16
_STAMP_HORIZON_NS = 1_000_000_000  # the newest stamp says little of now when it is older
_MOST_STRETCH = 8
_LEAST_REORDER_NS = 50_000


def stamped_ns(stamp_ns: int, now_ns: int) -> int:
    """The time of a 32-bit stamp: the one nearest to `now_ns`."""
    age_ns = (now_ns - stamp_ns) % _STAMPS
    return now_ns - (age_ns if age_ns < _STAMPS // 2 else age_ns - _STAMPS)


class CsaUd(DatagramPolicy):
    """Receiver-driven recovery with a dynamic interval."""

    name = "csa_ud"

    def __init__(self, view: View, timing: Timing) -> None:
        super().__init__(view, timing)
        self._health: dict[int, PathHealth] = {}
        self.looks = 0
        self.early_looks = 0

    # ---------------------------------------------------------------- receiver: when to look

    def interval_ns(self, work: PeerWork, missing: int) -> int:
        """T = clamp(a*SRTT + b*RTTVAR + expected remaining transfer time, T_min, T_max)."""
        srtt, var = self.rtt_ns(work.index, at_receiver=True)
        wait = self.timing.srtt_weight * srtt + self.timing.rttvar_weight * var
        rate = self.view.peer_state(work.index).receive_bytes_per_second
        remaining = missing * self.view.chunk_bytes / rate * 1e9 if rate > 0 else 0
        return self.clamp(work.stretch * wait + remaining)

    def reorder_ns(self, work: PeerWork) -> int:
        """How much longer a packet may take than one sent after it: paths differ."""
        _, var = self.rtt_ns(work.index, at_receiver=True)
        return max(var // 2, _LEAST_REORDER_NS)

    def on_receive_posted(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        yield from super().on_receive_posted(event, now_ns)
        work = self.work_with(event.peer)
        if next(iter(work.unopened), None) == event.key:
            yield LookAt(event.handle, now_ns + self.timing.first_look_ns)

    def on_first_packet(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        overtaken = self._posted_before(work, event.key)
        begun_before = list(work.opened.values())
        yield from super().on_first_packet(event, now_ns)
        yield LookAt(event.handle, now_ns + self.interval_ns(work, event.count))
        # A message begins when the one before it is out: the tails of those are here, or lost.
        for receive in begun_before:
            if receive.id is not None and not receive.tail_due and is_newer(event.id, receive.id):
                receive.tail_due = True
                yield from self._look_soon(receive, now_ns)
        # Messages begin in the order they were posted, or one of them was lost whole.
        for receive in overtaken:
            if not receive.overtaken:
                receive.overtaken = True
                yield LookAt(receive.handle, now_ns + self.interval_ns(work, 0))
        following = next(iter(work.unopened.values()), None)
        if not overtaken and following is not None:
            yield LookAt(following.handle, now_ns + self.timing.t_max_ns)

    @staticmethod
    def _posted_before(work: PeerWork, key: Key) -> list[Receiving]:
        before = []
        for other, receive in work.unopened.items():
            if other == key:
                break
            before.append(receive)
        return before

    def on_tail_seen(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        receive = self.work_with(event.peer).receives.get(event.handle)
        if receive is None or receive.tail_due:
            return ()
        receive.tail_due = True
        return self._look_soon(receive, now_ns)

    def _look_soon(self, receive: Receiving, now_ns: int) -> Iterator[Action]:
        """Look once what was sent up to now has had time to arrive over any path."""
        work = self.work_with(receive.peer)
        receive.echo_ns = self._newest_stamp_ns(receive.peer, now_ns)
        wait_ns = self.backed_off(self.reorder_ns(work), receive.barren)
        yield LookAt(receive.handle, now_ns + wait_ns)

    def _newest_stamp_ns(self, peer: int, now_ns: int) -> int | None:
        state = self.view.peer_state(peer)
        age_ns = now_ns - state.newest_stamp_at_ns
        recent = state.newest_stamp_at_ns >= 0 and age_ns < _STAMP_HORIZON_NS
        return state.newest_stamp_ns if recent else None

    # ---------------------------------------------------------------- receiver: a look

    def on_look(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        receive = work.receives.get(event.handle)
        if receive is not None:
            return self._look(work, receive, now_ns)
        send = work.sends.get(event.id)
        if send is None or send.handle != event.handle:
            return ()
        return self._ask(work, send, now_ns)

    def _look(self, work: PeerWork, receive: Receiving, now_ns: int) -> Iterator[Action]:
        state = self.view.receive_state(receive.handle)
        if state is None:
            return
        if receive.id is None and work.has_begun(receive.key):
            # A look by key would ask for the packets of the message that has begun.
            yield LookAt(receive.handle, now_ns + self.timing.t_max_ns)
            return
        missing = missing_packets(state)
        if self._flowing(receive, state):  # what lies beyond the highest is still to come
            missing[state.highest :] = False
        receive.barren = 0 if state.received > receive.received else receive.barren + 1
        receive.received = state.received
        if missing.any():
            yield from self._request(work, receive, missing, now_ns)
        receive.echo_ns = None
        rest = state.count - state.received
        wait_ns = self.backed_off(self.interval_ns(work, rest), receive.barren)
        yield LookAt(receive.handle, now_ns + wait_ns)

    @staticmethod
    def _flowing(receive: Receiving, state: ReceiveState) -> bool:
        advanced = state.received > receive.received
        return advanced and not receive.tail_due and state.highest + 1 < state.count

    def _request(
        self, work: PeerWork, receive: Receiving, missing: npt.NDArray[np.bool_], now_ns: int
    ) -> Iterator[Action]:
        self.looks += 1
        receive.round += 1
        receive.answered = False
        receive.asked_ns = now_ns
        echo = receive.echo_ns
        if echo is None:
            newest = self._newest_stamp_ns(work.index, now_ns)
            echo = None if newest is None else (newest - self.reorder_ns(work)) % _STAMPS
        wanted = None if receive.id is None else control.packet_set(missing)
        look = Look(receive.id, receive.key, receive.round, echo, wanted)
        yield from self._say_twice(work, look)

    def _say_twice(self, work: PeerWork, message: control.Message) -> Iterator[Action]:
        """On two paths: the loss of a small packet would cost a round, and a round the tail."""
        yield self.say(work.index, message)
        yield self.say(work.index, message)

    def on_asked_for(  # noqa: D102
        self, work: PeerWork, receive: Receiving, id_: int, now_ns: int
    ) -> Actions:
        pause_ns = self.backed_off(self.reorder_ns(work), receive.barren)
        if receive.asked_ns >= 0 and now_ns - receive.asked_ns < pause_ns:
            return ()
        return self._look(work, receive, now_ns)

    def _answered(self, work: PeerWork, answer: Answer, now_ns: int) -> Iterator[Action]:
        receive = work.receive_of(answer.id, answer.key)
        if receive is None or receive.answered or answer.round != receive.round % _ROUNDS:
            return
        receive.answered = True
        if answer.verdict == Verdict.NOT_STARTED:
            yield LookAt(receive.handle, now_ns + self.timing.t_max_ns)
            return
        if answer.verdict == Verdict.ON_THE_WAY:
            self.early_looks += 1
            work.stretch = min(work.stretch * 2, _MOST_STRETCH)
            if answer.packets == 0:  # nor sent: there is nothing to look for before the time set
                return
        else:
            work.stretch = max(work.stretch // 2, 1)
        # The answer left behind the packets that it speaks of.
        yield from self._look_soon(receive, now_ns)

    # ---------------------------------------------------------------- sender

    def on_message(  # noqa: D102
        self, work: PeerWork, message: control.Message, now_ns: int
    ) -> Actions:
        match message:
            case Look():
                return self._looked_at(work, message, now_ns)
            case Answer():
                return self._answered(work, message, now_ns)
            case _:
                return super().on_message(work, message, now_ns)

    def _looked_at(self, work: PeerWork, look: Look, now_ns: int) -> Iterator[Action]:
        if look.id is None:
            send = work.sends_by_key.get(look.key)
        else:
            send = work.sends.get(look.id)
            if send is None or send.key != look.key:
                yield self.refuse(work, look.id, look.key)
                return
        state = None if send is None else self.view.send_state(send.handle)
        if send is None or state is None:
            yield from self._answer(work, look, 0, Verdict.NOT_STARTED)
            return
        heard = send.look_round
        if heard is not None and not 0 < (look.round - heard) % _ROUNDS < _ROUNDS // 2:
            return  # said twice, or overtaken by a later one
        send.look_round = look.round
        wanted = self._wanted(look, state)
        if wanted is None:
            yield Refuse("a look asks for packets beyond the message")
            return
        if state.paused:
            yield Pause(send.handle, False)
        if state.sent == 0:
            yield from self._answer(work, look, 0, Verdict.NOT_STARTED)
            return
        lost = wanted[self._is_lost(work, look, state.sent_ns[wanted], now_ns)]
        if lost.size == 0:
            yield from self._answer(work, look, send.id, Verdict.ON_THE_WAY, int(wanted.size))
            return
        send.answer = (look.round, int(lost.size))
        self._count_first_pass(work, send, state)
        yield from self._blame_paths(work, state.paths[lost])
        action = Resend(send.handle, lost)
        yield from self.resend(work, send, action, int(state.attempts[lost].max()))

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
    ) -> Iterator[Action]:
        return self._say_twice(work, Answer(id_, look.key, look.round, verdict, packets))

    def on_sent(self, event: Event, now_ns: int) -> Actions:  # noqa: D102
        work = self.work_with(event.peer)
        send = work.sends.get(event.id)
        if send is None or send.handle != event.handle:
            return
        self._count_sent(work, send)
        send.barren = 0
        if send.answer is not None:
            round_, packets = send.answer
            send.answer = None
            answer = Answer(send.id, send.key, round_, Verdict.RESENT, packets)
            yield from self._say_twice(work, answer)
        yield LookAt(send.handle, now_ns + self._patience_ns(work))

    def _patience_ns(self, work: PeerWork) -> int:
        """How long a sender whose packets are out waits for a word before it asks."""
        srtt, var = self.rtt_ns(work.index)
        return self.clamp(2 * srtt + self.timing.rttvar_weight * var)

    def _ask(self, work: PeerWork, send: Sending, now_ns: int) -> Iterator[Action]:
        send.barren += 1
        wait_ns = self.backed_off(2 * self._patience_ns(work), send.barren)
        yield self.ask_if_ready(send)
        yield LookAt(send.handle, now_ns + wait_ns)

    # ---------------------------------------------------------------- paths

    def _paths(self, work: PeerWork) -> PathHealth:
        health = self._health.get(work.index)
        if health is None:
            health = self._health[work.index] = PathHealth(self.view.paths)
        return health

    def _count_first_pass(self, work: PeerWork, send: Sending, state: SendState) -> None:
        self._paths(work).note_sent(state.paths[send.counted : state.sent])
        send.counted = state.sent

    def _count_sent(self, work: PeerWork, send: Sending) -> None:
        """All that was queued of this send is out; its paths are known."""
        state = self.view.send_state(send.handle)
        if state is None:
            return
        self._count_first_pass(work, send, state)
        if send.resending is not None:
            self._paths(work).note_sent(state.paths[send.resending])
            send.resending = None

    def _blame_paths(self, work: PeerWork, paths: npt.NDArray[np.uint8]) -> Iterator[Action]:
        self._paths(work).note_lost(paths)
        shares = self._paths(work).reweigh()
        if shares is not None:
            yield UsePaths(work.index, shares)

    def on_acknowledged(self, work: PeerWork, send: Sending) -> Actions:  # noqa: D102
        self._count_sent(work, send)
        shares = self._paths(work).reweigh()
        return () if shares is None else [UsePaths(work.index, shares)]

    def summary(self) -> dict[str, Any]:  # noqa: D102
        shares = {peer: health.shares for peer, health in self._health.items()}
        return {"looks": self.looks, "early_looks": self.early_looks, "path_shares": shares}
