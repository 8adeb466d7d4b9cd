# SPDX-License-Identifier: GPL-2.0-or-later
"""Selective repeat, by any transport: what was lost is sent again, and nothing else."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from softroce_lab.check import fault_rules
from softroce_lab.check.striped.acknowledgements import captures_feedback
from softroce_lab.check.striped.controls import (
    BY_FEEDBACK,
    CSA_UD,
    TIMED,
    Asked,
    ControlMessage,
    Controls,
    Feedback,
)
from softroce_lab.check.striped.losses import Bounds, Losses, Understood
from softroce_lab.check.striped.messages import NEVER, Stream, Striped
from softroce_lab.check.striped.reasons import Timers, counts_psns, why_not
from softroce_lab.check.verdict import Rules, Tally
from softroce_lab.experiment.transports.transport import USERS

RULES = Rules()
_UNKNOWN = "nothing tells which transport it is"
_MOST_ATTEMPTS = 65535  # the header counts no further
_MOST_SHARE = 0.5  # of a stream's packets on one path: then it may come up twice in a row


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

    def is_unfounded_cut(self, sent: ControlMessage, *, may_be_dropped: bool) -> bool:
        """Whether this feedback calls a packet trimmed that was not, or had arrived before.

        `may_be_dropped`: packets were dropped behind the capture of the last link.
        """
        body: Feedback = sent.body  # type: ignore[assignment]
        packet = body.wanted
        if packet is None or not body.trimmed or body.at_last_hop:
            return False
        place = int(np.searchsorted(self.index, packet))
        if place == len(self.index) or self.index[place] != packet:
            return True
        arrived_at = NEVER if may_be_dropped else int(self.arrived_at[place])
        return bool(self.lost_at[place] > min(sent.at, arrived_at))

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
            _by_feedback(lab, number, before, tally)
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


def _by_feedback(lab: Understood, number: int, before: np.ndarray, tally: Tally) -> None:
    """Of BY_FEEDBACK, whose senders act on per-packet feedback."""
    view, controls = lab.view, lab.controls
    one = view.transmissions[number]
    message, stream = int(one["message"]), view.stream(one)
    if not captures_feedback(view, stream) or not stream.leaves:
        tally.doubts("what the sender received and sent was not captured")
        return
    if doubt := _doubt(view, controls, stream, one):
        tally.doubts(doubt)
        return
    if message in controls.not_ready:
        tally.passed()  # all that had been sent was refused
        return
    acks = lab.acknowledgements(message)
    strict = view.times_senders
    if strict and counts_psns(lab, stream) and (doubt := lab.connection(stream.number).doubt):
        tally.doubts(doubt)
        return
    why = why_not(lab, number, strict=strict)
    if not why:
        tally.passed()
    elif acks.unsure:
        tally.doubts("one copy of the feedback had flipped bits, and the ICRCs were cut off")
    elif acks.overtaken:
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
    if not captures_feedback(view, view.stream(one)):
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
    if controls.transports[stream.number] in TIMED and not captures_feedback(view, stream):
        return "which bitmaps the sender received was not captured"
    if controls.transports[stream.number] in TIMED and view.doubts_timers:
        return view.doubts_timers  # nor how long it may have acted on one
    return controls.doubts_feedback(stream)


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
