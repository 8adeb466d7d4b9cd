# SPDX-License-Identifier: GPL-2.0-or-later
"""Selective repeat, by any transport: what was lost is sent again, and nothing else."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from softroce_lab.check import fault_rules
from softroce_lab.check.striped.controls import (
    BY_FEEDBACK,
    BY_TIME,
    CSA_UD,
    DCP,
    FALCON,
    IRN,
    MRC,
    NDP,
    TIMED,
    UET_ROD,
    UET_RUD,
    Asked,
    ControlMessage,
    Controls,
    Feedback,
)
from softroce_lab.check.striped.losses import Bounds, Losses, Understood
from softroce_lab.check.striped.messages import CONTROL, NEVER, Stream, Striped
from softroce_lab.check.verdict import Rules, Tally
from softroce_lab.experiment.transports.transport import USERS
from softroce_lab.transports.defaults import MILLISECOND_NS

_FALCON_FIRST_NS = 2 * MILLISECOND_NS  # its first timeout, backed off: at most 1.5 ms
_NDP_FIRST_NS = 20 * MILLISECOND_NS
_LEAST = {
    DCP: ("restart_timeout", 8 * MILLISECOND_NS),
    NDP: ("least_timeout", 5 * MILLISECOND_NS),
}
"""The options and their defaults."""
_UET_RTO_NS = {True: MILLISECOND_NS // 10, False: 5 * MILLISECOND_NS}  # by option `trimming`
_UET_LONGEST_NS = 16 * _UET_RTO_NS[False]
_LONGEST_NS = 40 * MILLISECOND_NS  # SelectiveRepeat::kLongestWait
RULES = Rules()
_UNKNOWN = "nothing tells which transport it is"
_MOST_ATTEMPTS = 65535  # the header counts no further
_MOST_SHARE = 0.5  # of a stream's packets on one path: then it may come up twice in a row


# ---------------------------------------------------------------- what senders knew by feedback


@dataclasses.dataclass(frozen=True, slots=True)
class Timers:
    """Of a stream, ns (docs/explanation/transports.md)."""

    least_ns: int  # no timer is shorter
    longest_ns: int  # nor any wait longer

    @classmethod
    def of(cls, transport: str, view: Striped) -> Timers:
        """RTO_low and RTO_high, SRNIC's 10 base RTTs, or the timeout that a user set for all.

        Of `dcp`, until a message starts again; of `ndp`, until a packet leaves without a pull.

        Those of BY_TIME follow the measured RTT: no capture shows how short they may be.
        """
        if transport in _LEAST:
            least_ns = view.least_timeout_ns(*_LEAST[transport])
            first_ns = _NDP_FIRST_NS if transport == NDP else least_ns
            return cls(least_ns, 2 * max(least_ns, first_ns, view.timing.t_max_ns))
        if transport in BY_TIME:
            first_ns = _FALCON_FIRST_NS if transport == FALCON else view.irn_rto_ns[1]
            if transport in (UET_RUD, UET_ROD):
                first_ns = max(_UET_LONGEST_NS, 16 * (view.timing.fixed_rto_ns or 0))
            return cls(0, max(first_ns, 2 * view.timing.t_max_ns))
        fixed_ns = view.timing.fixed_rto_ns
        low_ns, high_ns = (fixed_ns, fixed_ns) if fixed_ns else view.irn_rto_ns
        least_ns = low_ns if transport == IRN else fixed_ns or 10 * view.timing.initial_rtt_ns
        return cls(least_ns, max(high_ns, min(16 * high_ns, _LONGEST_NS)))


class Acknowledgements:
    """All feedback on one message, in time, as it reached the sender's link."""

    def __init__(self, view: Striped, message: int, reports: Sequence[ControlMessage]) -> None:
        self._view = view
        ordered = sorted(
            (each for each in reports if each.last_received_at != NEVER), key=_received_at
        )
        self.unsure = not all(each.sure for each in ordered)  # whether all of it is known
        bodies = [each.body for each in ordered]
        self.at = np.array([each.last_received_at for each in ordered], dtype=np.int64)
        self.time_ns = view.time_ns(self.at)
        cumulative = [body.cumulative for body in bodies]  # type: ignore[union-attr]
        ends = [body.end for body in bodies]  # type: ignore[union-attr]
        self.cumulative = np.maximum.accumulate(np.array(cumulative, dtype=np.int64))
        self.end = np.maximum.accumulate(np.array(ends, dtype=np.int64))
        wanted = [body.wanted for body in bodies]  # type: ignore[union-attr]
        self._wanted = np.array([-1 if each is None else each for each in wanted], dtype=np.int64)
        part = slice(*view.messages[["begin", "end"]][message].item())
        self.sent = view.transmissions[part]
        self.sent_ns = view.time_ns(self.sent["at"])
        self.way_ns = _way_ns(view, view.stream(self.sent[0]))
        self._beyond: dict[
            int, int
        ] = {}  # when a packet beyond the cumulative index was first reported
        for time_ns, body in zip(self.time_ns.tolist(), bodies, strict=True):
            for packet in body.packets:  # type: ignore[union-attr]
                self._beyond.setdefault(packet, time_ns)

    def reported_ns(self, packet: int) -> int:
        """When a report of the packet first passed the sender's link; NEVER."""
        place = int(np.searchsorted(self.cumulative, packet, side="right"))
        below = int(self.time_ns[place]) if place < len(self.time_ns) else NEVER
        return min(below, self._beyond.get(packet, NEVER))

    def wants(self, first: int, last: int, since_ns: int, at: int) -> bool:
        """Whether the receiver asked for one of these packets in between."""
        asked = (first <= self._wanted) & (self._wanted <= last)
        return bool(np.any(asked & (self.time_ns > since_ns) & (self.at < at)))

    @functools.cached_property
    def overtaken(self) -> bool:
        """Whether feedback was reordered before the sender's link without a known rule.

        Then it may be reordered after it, too. Each control message has the next number.
        """
        view = self._view
        if fault_rules.are_known(view.evidence):
            return False
        received = (view.stream_of == view.stream(self.sent[0]).back) & view.taps.arrives
        numbers = view.column("lab_message", np.flatnonzero(received & (view.kinds == CONTROL)))
        return bool(np.any(np.diff(numbers.astype(np.int64)) < 0))

    def gap(self, packet: int, at: int, distance: int = 1) -> bool:
        """Whether one so far behind it, or further, was known to have arrived by then."""
        before = int(np.searchsorted(self.at, at))
        return before > 0 and int(self.end[before - 1]) > packet + distance

    def may_have_restarted(self, before_ns: int, now_ns: int, least_ns: int) -> bool:
        """Whether the message was silent for so long in between."""
        sent_ns = np.sort(self.sent_ns)
        since_ns, until_ns = sent_ns[:-1], sent_ns[1:]
        silent = (since_ns >= before_ns) & (until_ns <= now_ns)
        return bool(np.any(silent & (until_ns - since_ns >= least_ns)))

    def may_have_run_out(self, before_ns: int, now_ns: int, least_ns: int) -> bool:
        """Whether the timer can have expired in between.

        The packet at the cumulative index is retransmitted then, though others may leave before
        it. If its acknowledgement comes first it is not.
        """
        since_ns, until_ns = self._waits
        expires_ns = np.maximum(since_ns + least_ns, before_ns + 1)
        return bool(np.any(expires_ns <= np.minimum(until_ns, now_ns)))

    @functools.cached_property
    def _waits(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """When the timer began for the packet at the cumulative index, ns, and until when it can
        have expired: that packet was retransmitted, or its acknowledgement had come.

        It begins when the cumulative acknowledgement advances and when that packet is sent.
        """
        steps = np.flatnonzero(np.diff(self.cumulative, prepend=0))
        begin_ns = [0, *self.time_ns[steps].tolist()]
        end_ns = [*(self.time_ns[steps] + self.way_ns).tolist(), NEVER]
        at = np.append(0, self.cumulative[steps])
        index = self.sent["index"]
        first, behind = (np.searchsorted(index, at, side) for side in ("left", "right"))
        waits = list[tuple[int, int]]()
        for step in range(len(at)):
            sent_ns = self.sent_ns[first[step] : behind[step]].tolist()
            for each_ns, next_ns in itertools.pairwise([*sent_ns, NEVER]):
                until_ns = min(next_ns, end_ns[step])
                if each_ns < end_ns[step] and until_ns != NEVER:
                    waits.append((max(each_ns, begin_ns[step]), until_ns))
        since, until = np.array(waits, dtype=np.int64).reshape(-1, 2).T
        return since, until


def _received_at(sent: ControlMessage) -> int:
    return sent.last_received_at


def why_not(
    view: Striped, controls: Controls, acks: Acknowledgements, one: np.void, *, strict: bool
) -> str | None:
    """What forbids this retransmit; None: the sender saw a gap, or its timer ran out.

    Of `dcp`: the packet was reported as trimmed, or its message started again. Of `ndp`: it was
    reported as trimmed, or its timer ran out.

    `strict`: the timers are known, for the capture lies in its run directory.
    """
    stream = view.stream(one)
    packet, at = int(one["index"]), int(one["at"])
    now_ns = int(view.time_ns(at))
    way_ns = acks.way_ns
    if acks.reported_ns(packet) < now_ns - way_ns:
        return "a report that it had arrived had reached its sender"
    transport = controls.transports[stream.number]
    number = int(np.flatnonzero((acks.sent["index"] == packet) & (acks.sent["at"] == at))[0])
    before_ns = int(acks.sent_ns[number - 1])
    if strict and transport in (UET_RUD, UET_ROD):
        return _why_not_by_nack(view, acks, packet, at, before_ns, goes_back=transport == UET_ROD)
    least_ns = Timers.of(transport, view).least_ns
    if transport in _LEAST:
        if not strict or acks.wants(packet, packet, before_ns, at):
            return None
        if transport == NDP and now_ns - before_ns >= least_ns:
            return None
        if transport == DCP and acks.may_have_restarted(before_ns, now_ns, least_ns):
            return None
        return "no report that it was trimmed had come, and no timer ran out"
    if transport == MRC and strict:
        return _why_not_of_mrc(view, controls, acks, one, before_ns)
    if acks.gap(packet, at) or not strict or transport in BY_TIME:
        return None
    if acks.may_have_run_out(before_ns, now_ns, least_ns):
        return None
    return "no packet behind it was known to have arrived, and no timer ran out"


def _why_not_by_nack(
    view: Striped, acks: Acknowledgements, packet: int, at: int, before_ns: int, *, goes_back: bool
) -> str | None:
    """The same of `uet_rud` and `uet_rod`, whose senders act on NACKs and timers.

    A recovery of SLEEK also retransmits packets that nothing shows to be missing.
    """
    options, timing = view.options, view.timing
    if not options or options.get("sleek") or timing.rto_rttvar_weight:
        return None
    first, since_ns = packet, before_ns
    if goes_back:  # to a packet before it, which was sent at any time
        first, since_ns = 0, before_ns - acks.way_ns
        before_ns = int(acks.sent_ns.min())
    usual_ns = _UET_RTO_NS[bool(options.get("trimming", True))]
    rto_ns = timing.fixed_rto_ns or int(options.get("rto_init", 0)) or usual_ns
    if acks.wants(first, packet, since_ns, at) or view.time_ns(at) - before_ns >= rto_ns:
        return None
    return "no NACK asked for it, and no timer ran out"


def _why_not_of_mrc(
    view: Striped, controls: Controls, acks: Acknowledgements, one: np.void, before_ns: int
) -> str | None:
    """None: packets behind it had arrived, it was trimmed, or its timer ended.

    A later message of its connection is behind it, too.

    `before_ns`: when the packet was sent before.
    """
    packet, at = int(one["index"]), int(one["at"])
    now_ns = int(view.time_ns(at))
    messages = view.messages
    later = messages["stream"] == messages["stream"][one["message"]]
    later &= messages["first_at"] > messages["first_at"][one["message"]]
    told = (controls.feedback.get(each, []) for each in np.flatnonzero(later).tolist())
    if (
        acks.gap(packet, at, view.mrc_distance)
        or any(each.last_received_at < at for reports in told for each in reports)
        or acks.wants(packet, packet, before_ns, at)
        or now_ns - before_ns >= view.mrc_timeout_ns
    ):
        return None
    return "none far enough behind it had arrived, it was not trimmed, and its timer had not ended"


def _way_ns(view: Striped, stream: Stream) -> int:
    """From the sender's link to the sender it may take as long as a round trip that was measured.

    Plus the delay of rules on that link: the capture is at its beginning.
    """
    mine = np.flatnonzero(view.stream_of == stream.number)
    srtt, var = (int(view.column(name, mine).max()) for name in ("lab_srtt_ns", "lab_rttvar_ns"))
    usual_ns = max(srtt + view.timing.lost_rttvar_weight * var, view.timing.initial_rtt_ns)
    return usual_ns + fault_rules.held_back_ns(view.evidence, view.answers(stream))


@dataclasses.dataclass(frozen=True, slots=True)
class SeenPackets:
    """The packets of a message that were seen, in the order of their indices."""

    index: npt.NDArray[np.int64]
    arrived_at: npt.NDArray[np.int64]  # at the receiver's link, first
    lost_at: npt.NDArray[np.int64]  # where a transmission was first dropped, corrupted or trimmed
    below_at: npt.NDArray[np.int64]  # where the last of the first n had arrived

    @classmethod
    def of(cls, view: Striped, message: int) -> SeenPackets:
        first = view.packet_message
        part = slice(*np.searchsorted(first, [message, message + 1]).tolist())
        index = view.transmissions["index"][view.packet_begins[part]].astype(np.int64)
        arrived = view.packet_arrived_at[part]
        lost = np.minimum.reduceat(view.transmissions["lost_at"], view.packet_begins)[part]
        return cls(index, arrived, lost, np.maximum.accumulate(np.append(-1, arrived)))

    def unfounded(self, sent: ControlMessage) -> int | None:
        """The first packet that this feedback calls there and that had not come; None: all had."""
        body: Feedback = sent.body  # type: ignore[assignment]
        below = int(np.searchsorted(self.index, body.cumulative))
        if below < body.cumulative:
            return int(np.setdiff1d(np.arange(below + 1), self.index[:below])[0])
        if self.below_at[below] > sent.at:
            return int(self.index[np.flatnonzero(self.arrived_at[:below] > sent.at)[0]])
        return next((packet for packet in body.packets if not self._had_come(packet, sent)), None)

    def is_unfounded_cut(self, sent: ControlMessage) -> bool:
        """Whether this feedback calls a packet trimmed that was not, or had arrived before.

        The queue of the last link is behind the capture.
        """
        body: Feedback = sent.body  # type: ignore[assignment]
        packet = body.wanted
        if packet is None or not body.trimmed or body.at_last_hop:
            return False
        place = int(np.searchsorted(self.index, packet))
        if place == len(self.index) or self.index[place] != packet:
            return True
        return bool(self.lost_at[place] > min(sent.at, int(self.arrived_at[place])))

    def _had_come(self, packet: int, sent: ControlMessage) -> bool:
        place = int(np.searchsorted(self.index, packet))
        here = place < len(self.index) and self.index[place] == packet
        return bool(here and self.arrived_at[place] < sent.at)


# ---------------------------------------------------------------- rules


@RULES.rule(
    "sr.only-holes",
    "a packet is sent again when it was lost, or said to be missing",
    "docs/explanation/transports.md",
)
def _only_holes(lab: Understood, tally: Tally) -> None:
    view, controls = lab.view, lab.controls
    sent = view.transmissions
    spurious = 0
    acks: dict[int, Acknowledgements] = {}
    for number in np.flatnonzero(sent["attempt"] > 0).tolist():
        one = sent[number]
        stream = view.stream(one)
        before = sent[view.packet_begins[view.packet_of[number]] : number]
        transport = controls.transports.get(stream.number)
        if transport == USERS:
            continue  # its sender's state is unknown
        came = bool(np.any(before["arrivals"] > 0))
        spurious += transport in TIMED and came
        lost = len(before) and before[-1]["gone_at"] < one["at"]
        if transport in BY_FEEDBACK:
            _by_feedback(view, controls, acks, one, before, tally)
        elif lost or _may(view, controls, one, transport):
            tally.passed()
        elif doubt := _doubt(view, controls, stream, one):
            tally.doubts(doubt)
        else:
            _blame(view, one, before, tally)
    if spurious:
        tally.notes_that(
            f"{_timed(controls)}'s timer retransmitted {spurious} that were on their way"
        )


def _timed(controls: Controls) -> str:
    return " and ".join(sorted(set(controls.transports.values()) & set(TIMED)))


def _by_feedback(
    view: Striped,
    controls: Controls,
    acks: dict[int, Acknowledgements],
    one: np.void,
    before: np.ndarray,
    tally: Tally,
) -> None:
    """Of BY_FEEDBACK, whose senders act on per-packet feedback."""
    message, stream = int(one["message"]), view.stream(one)
    if not _captures_feedback(view, stream) or not stream.leaves:
        tally.doubts("what the sender received and sent was not captured")
        return
    if doubt := _doubt(view, controls, stream, one):
        tally.doubts(doubt)
        return
    if message in controls.not_ready:
        tally.passed()  # all that had been sent was refused
        return
    if message not in acks:
        acks[message] = Acknowledgements(view, message, controls.feedback.get(message, []))
    why = why_not(view, controls, acks[message], one, strict=view.times_senders)
    if not why:
        tally.passed()
    elif acks[message].unsure:
        tally.doubts("one copy of the feedback had flipped bits, and the ICRCs were cut off")
    elif acks[message].overtaken:
        tally.doubts("answers overtook each other, and may behind the capture")
    elif fault_rules.dropped_by_queues(view.evidence, view.answers(stream)):
        tally.doubts("the queue of the sender's link, behind the capture, dropped packets")
    else:
        _blame(view, one, before, tally, why)


def _may(view: Striped, controls: Controls, one: np.void, transport: str | None) -> bool:
    """Whether a rule of the protocol explains the retransmission: its receiver lacks the packet."""
    asked = [a for a in controls.asked.get(int(one["message"]), []) if a.sent.at < one["at"]]
    index = np.array([one["index"]], dtype=np.int64)
    if transport in TIMED:
        unit = max((each.packets for each in asked), default=1)
        if int(one["index"]) + unit >= int(view.messages["count"][one["message"]]):
            return True  # retransmitted so that a receiver that has all acknowledges again
        asked = _known(view, asked, one)
        if not asked:
            return True  # nothing is known to have arrived
    return any(bool(each.names(index)[0]) for each in asked)


def _known(view: Striped, asked: list[Asked], one: np.void) -> list[Asked]:
    """The bitmaps that the sender may have acted on, for a retransmission may have waited.

    Those of the last moments, and the newest of those before. Where it was not captured what the
    sender received, any may have been lost: all of them.
    """
    if not _captures_feedback(view, view.stream(one)):
        return asked
    horizon = int(view.time_ns(int(one["at"]))) - 2 * view.timing.t_max_ns
    received = [each for each in asked if each.sent.last_received_at < one["at"]]
    older = [
        place
        for place, each in enumerate(received)
        if each.sent.sure and int(view.time_ns(each.sent.last_received_at)) < horizon
    ]
    # Before the first arrived, the timer may have expired.
    return received[older[-1] :] if older else []


def _doubt(view: Striped, controls: Controls, stream: Stream, one: np.void) -> str | None:
    """Why the capture may not show the reason."""
    if stream.number not in controls.transports:
        return _UNKNOWN
    if not view.messages["begun"][one["message"]]:
        return "the message began before the capture"
    if controls.transports[stream.number] in TIMED and not _captures_feedback(view, stream):
        return "which bitmaps the sender received was not captured"
    if controls.transports[stream.number] in TIMED and view.doubts_timers:
        return view.doubts_timers  # nor how long it may have acted on one
    return controls.doubts_feedback(stream)


def _captures_feedback(view: Striped, stream: Stream) -> bool:
    """Whether what reaches the sender was captured."""
    return stream.back is not None and view.streams[stream.back].arrives


def _blame(
    view: Striped,
    one: np.void,
    before: np.ndarray,
    tally: Tally,
    why: str = "nobody lost it and nobody asked for it",
) -> None:
    frames = view.frames(*before["at"], one["at"])
    tally.failed(
        frames,
        f"{view.name(one)}: attempt {one['attempt']}, although {why}",
    )


@RULES.rule(
    "sr.repaired",
    "a lost packet is sent again, or its message ends in error",
    "docs/explanation/transports.md",
)
def _repaired(lab: Understood, tally: Tally) -> None:
    view, controls, losses = lab.view, lab.controls, lab.losses
    refused = controls.places(controls.refused)[losses.message] != NEVER
    done = refused | losses.covered | controls.failed[losses.message]
    # A message with parity need not be retransmitted: it is restored.
    done |= (view.messages["parity"] > 0)[losses.message] & (
        controls.places(controls.acked)[losses.message] != NEVER
    )
    done |= losses.restored
    done |= (losses.retransmitted_at != NEVER) | (losses.arrived_at != NEVER)
    tally.passed(int(done.sum()))
    for number in np.flatnonzero(~done).tolist():
        stream = view.streams[int(losses.stream[number])]
        if losses.unsure[number]:
            tally.doubts("an earlier copy may have arrived")
        elif not stream.whole:
            tally.doubts("retransmissions may have taken links that were not captured")
        elif view.missed:
            tally.doubts(f"the capture missed {view.missed} packets")
        elif _may_follow(view, controls, losses, number):
            tally.doubts(view.doubts_timers or "the capture ends too soon after it")
        else:
            tally.failed(
                view.frames(losses.gone_at[number]),
                f"{view.name(view.transmissions[losses.of[number]])} was lost and never sent again",
            )


def _may_follow(view: Striped, controls: Controls, losses: Losses, number: int) -> bool:
    """Whether the retransmission may come after the capture's end."""
    message, stream = int(losses.message[number]), view.streams[int(losses.stream[number])]
    if message in controls.acked:
        return False
    if view.doubts_timers or controls.transports.get(stream.number) == USERS:
        return True
    since = int(losses.gone_at[number])
    if stream.number not in controls.of(CSA_UD):  # a timer of ud_rto starts when all is out
        since = max(since, int(view.messages["last_at"][message]))
    transport = controls.transports.get(stream.number)
    if transport in BY_FEEDBACK:
        longest_ns = Timers.of(transport, view).longest_ns
        return view.end_ns - int(view.time_ns(since)) < 2 * longest_ns
    bounds = Bounds.of(view, stream)
    return view.end_ns - int(view.time_ns(since)) < bounds.nack_ns + bounds.retransmit_ns


@RULES.rule(
    "sr.window",
    "a packet is sent for the first time when the window of packet sequence numbers admits it",
    "docs/explanation/transports.md, `mrc`",
)
def _window(lab: Understood, tally: Tally) -> None:
    """The oldest packet without an acknowledgement is less than a window behind.

    An acknowledgement counts from the sender's link on, so the sender may know less.
    """
    view, controls = lab.view, lab.controls
    messages = view.messages
    for number in sorted(controls.of(MRC)):
        stream = view.streams[number]
        sent = view.transmissions
        first = sent[(sent["attempt"] == 0) & (messages["stream"][sent["message"]] == number)]
        first = np.sort(first, order="at")
        beyond = len(first) - view.mpr_packets
        if beyond <= 0:
            tally.passed(len(first))
            continue
        named = set(first["message"].tolist())
        is_known = messages["begun"][sorted(named)].all() and _captures_feedback(view, stream)
        if not is_known or named & controls.not_ready or named & controls.refused.keys():
            tally.doubts("not all acknowledgements are known", beyond)
            continue
        acks = {
            message: Acknowledgements(view, message, controls.feedback.get(message, []))
            for message in named
        }
        pairs = zip(first["message"].tolist(), first["index"].tolist(), strict=True)
        reported_ns = np.array([acks[message].reported_ns(index) for message, index in pairs])
        known_ns = np.maximum.accumulate(reported_ns)[:beyond]
        early = known_ns > view.time_ns(first["at"][view.mpr_packets :])
        tally.passed(len(first) - int(early.sum()))
        for one in first[view.mpr_packets :][early]:
            tally.failed(
                view.frames(one["at"]),
                f"{view.name(one)} was sent beyond the window of {view.mpr_packets} packets",
            )


@RULES.rule(
    "sr.attempts",
    "attempts at a packet count up from 0, one by one",
    "docs/reference/wire-format.md",
)
def _attempts(lab: Understood, tally: Tally) -> None:
    view = lab.view
    sent = view.transmissions
    if not len(sent):
        return
    attempt = sent["attempt"].astype(np.int64)
    same = np.zeros(len(sent), dtype=np.bool_)  # packet as the transmission before
    same[1:] = view.packet_of[1:] == view.packet_of[:-1]
    before = np.where(same, np.roll(attempt, 1), -1)
    full = attempt == _MOST_ATTEMPTS
    again = same & (attempt == before) & ~full
    late = same & (sent["at"] < np.roll(sent["at"], 1))
    leaves = np.array([each.leaves for each in view.streams], dtype=np.bool_)
    known = same | view.messages["begun"][sent["message"]]
    known &= leaves[view.messages["stream"][sent["message"]]] & (view.missed == 0)
    wrong = again | known & ~full & ((attempt != before + 1) | late)
    tally.passed(int((~wrong).sum()))
    for number in np.flatnonzero(wrong).tolist():
        one = sent[number]
        how = "again" if again[number] else "out of turn"
        places = [int(sent["at"][n]) for n in (number - 1, number) if n == number or same[number]]
        tally.failed(
            view.frames(*places),
            f"{view.name(one)}: attempt {one['attempt']} {how}",
        )


def _keep_to_a_path(sent: npt.NDArray[np.void]) -> bool:
    """Whether all packets of each message, and of one more than two, took the same path."""
    _, of, counts = np.unique(sent["message"], return_inverse=True, return_counts=True)
    least, most = np.full(len(counts), 255), np.zeros(len(counts), dtype=np.int64)
    np.minimum.at(least, of, sent["path"])
    np.maximum.at(most, of, sent["path"])
    indices = np.zeros(len(counts), dtype=np.int64)
    np.maximum.at(indices, of, sent["index"])
    return bool((least == most).all() and indices.max() > 1)


@RULES.rule(
    "sr.other-path",
    "a packet is sent again on another path than the time before",
    "docs/explanation/csa-ud.md, Loss checks",
)
def _other_path(lab: Understood, tally: Tally) -> None:
    view, controls = lab.view, lab.controls
    sent = view.transmissions
    again = np.zeros(len(sent), dtype=np.bool_)
    again[1:] = (view.packet_of[1:] == view.packet_of[:-1]) & (
        sent["attempt"][1:] == sent["attempt"][:-1] + 1
    )
    stream = view.messages["stream"][sent["message"]]
    for number in np.unique(stream[again]).tolist():
        mine = stream == number
        shares = np.bincount(sent["path"][mine]) / max(int(mine.sum()), 1)
        occasions = np.flatnonzero(again & mine)
        transport = controls.transports.get(number)
        if transport == USERS or transport in BY_FEEDBACK:
            continue  # paths of its own, and a message that stays on its path
        if transport is None:
            tally.doubts(_UNKNOWN, len(occasions))
            continue
        if not view.streams[number].leaves and view.counts_attempts(number):
            tally.doubts("between two attempts another may have left its sender", len(occasions))
            continue
        if np.count_nonzero(shares) < 2:
            tally.doubts("the stream used one path", len(occasions))
            continue
        if _keep_to_a_path(sent[mine]):
            tally.doubts("every message keeps to one path", len(occasions))
            continue
        stayed = occasions[sent["path"][occasions] == sent["path"][occasions - 1]]
        tally.passed(len(occasions) - len(stayed))
        for place in stayed.tolist():
            one = sent[place]
            if shares[one["path"]] > _MOST_SHARE:
                tally.doubts("most packets took that path, for the others lose more")
                continue
            tally.failed(
                view.frames(sent[place - 1]["at"], one["at"]),
                f"{view.name(one)} retransmitted on path {one['path']}, which lost it",
            )
