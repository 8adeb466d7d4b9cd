# SPDX-License-Identifier: GPL-2.0-or-later
"""CSA-UD (docs/explanation/csa-ud.md): the receiver checks, and nothing is retransmitted
unasked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from softroce_lab.check.striped.controls import CSA_UD, Asked, Controls
from softroce_lab.check.striped.losses import Losses, Understood
from softroce_lab.check.striped.messages import CONTROL, DATA, NEVER, PATH_PROBE, Stream, Striped
from softroce_lab.check.verdict import Rules, Tally
from softroce_lab.transports.control import Nack

_NACKS = "docs/explanation/csa-ud.md, Loss checks"
RULES = Rules()

_TIMER = 2  # of the flags of a NACK
_IN_STEP_COPY = 9  # attempt: what was lost eight times is sent again in two copies
SHARE = 0.05  # of the bytes of data, on the wire
LEAST_BYTES = 4096  # a share of little data is no measure
MESSAGE_BYTES = 512  # an acknowledgement, path probes and a keepalive
ROUND_BYTES = 6 * 256  # NACKs, one and two copies behind probes, and the probes
# keepalive and acknowledgement of both ends, every `keepalive_interval_ns`
KEEPALIVE_BYTES = 4 * 128


def _of_each_stream(
    check: Callable[[Understood, Stream, Tally], None],
) -> Callable[[Understood, Tally], None]:
    """A check of all streams that `csa_ud` recovers."""

    @functools.wraps(check)
    def check_all(lab: Understood, tally: Tally) -> None:
        for number in sorted(lab.controls.of(CSA_UD)):
            check(lab, lab.view.streams[number], tally)

    return check_all


def _mine(losses: Losses, stream: Stream) -> list[int]:
    return np.flatnonzero((losses.stream == stream.number) & ~losses.covered).tolist()


def _named(view: Striped, losses: Losses, number: int) -> str:
    id_ = view.messages["id"][losses.message[number]]
    return f"packet {losses.index[number]} of message id {id_}"


@RULES.rule(
    "csa.nack",
    "a lost packet is named by a NACK within the bound, or its message ends in error",
    _NACKS,
)
@_of_each_stream
def _nack(lab: Understood, stream: Stream, tally: Tally) -> None:
    view, controls, losses = lab.view, lab.controls, lab.losses
    bounds = lab.bounds(stream)
    refused = controls.places(controls.refused)
    doubt = controls.doubts_feedback(stream) or view.doubts_timers
    early = 0
    for number in _mine(losses, stream):
        gone_at, asked_at = int(losses.gone_at[number]), int(losses.asked_at[number])
        if controls.failed[losses.message[number]]:
            tally.passed()
            continue
        if _asked_before(view, controls, losses, number):
            early += 1
            tally.passed()
            continue
        until = min(asked_at, int(refused[losses.message[number]]))
        waited_ns = _since(view, gone_at, until)
        if until != NEVER and (waited_ns <= bounds.nack_ns or not view.stamped):
            tally.passed()
        elif losses.unsure[number]:
            tally.doubts("another copy may have arrived")
        elif doubt:
            tally.doubts(doubt)
        elif waited_ns <= bounds.nack_ns and losses.message[number] not in controls.acked:
            tally.doubts("the capture ends too soon after it")
        else:
            when = f"after {waited_ns / 1e6:.1f} ms" if until != NEVER else "never"
            tally.failed(
                [view.frame(place) for place in (gone_at, until) if place != NEVER],
                f"{_named(view, losses, number)} was lost and asked for {when}; "
                f"the bound is {bounds.nack_ns / 1e6:.1f} ms",
            )
    if early:
        tally.notes_that(f"{early} were asked for before they were lost, and retransmitted for it")


def _asked_before(view: Striped, controls: Controls, losses: Losses, number: int) -> bool:
    """Whether the next attempt follows a NACK from before the loss: then none need follow."""
    if not losses.retransmitted_at[number] < losses.asked_at[number]:
        return False
    following = view.transmissions[losses.of[number] + 1]
    return _asked_between(controls, view.transmissions[losses.of[number]], following)


def _since(view: Striped, begin: int, end: int) -> int:
    """From one place to another, or to the capture's end; ns."""
    end_ns = view.end_ns if end == NEVER else int(view.time_ns(end))
    return end_ns - int(view.time_ns(begin))


@RULES.rule(
    "csa.retransmit",
    "what a NACK names is sent again within the bound, if it is lost",
    _NACKS,
)
@_of_each_stream
def _retransmit(lab: Understood, stream: Stream, tally: Tally) -> None:
    """From a NACK's arrival at the sender, so only where it was captured there."""
    view, controls, losses = lab.view, lab.controls, lab.losses
    bounds = lab.bounds(stream)
    refused = controls.places(controls.refused)
    for number in _mine(losses, stream):
        failed = bool(controls.failed[losses.message[number]])
        if failed or _asked_before(view, controls, losses, number):
            tally.passed()
            continue
        if losses.asked_at[number] == NEVER:
            continue  # the rule above
        last_received_at = int(losses.last_received_at[number])
        retransmitted_at = int(losses.retransmitted_at[number])
        until = min(retransmitted_at, int(refused[losses.message[number]]))
        if last_received_at == NEVER:
            if until != NEVER:
                tally.passed()
            else:
                tally.doubts("no NACK was seen to reach the sender")
            continue
        waited_ns = _since(view, last_received_at, until)
        if until != NEVER and (waited_ns <= bounds.retransmit_ns or not view.stamped):
            tally.passed()
        elif losses.unsure[number]:
            tally.doubts("an earlier copy may have arrived")
        elif doubt := _doubts_retransmissions(view, stream):
            tally.doubts(doubt)
        elif waited_ns <= bounds.retransmit_ns and losses.message[number] not in controls.acked:
            tally.doubts("the capture ends too soon after it")
        else:
            when = f"{waited_ns / 1e6:.1f} ms after" if until != NEVER else "never after"
            places = (int(losses.gone_at[number]), last_received_at, until)
            tally.failed(
                [view.frame(place) for place in places if place != NEVER],
                f"{_named(view, losses, number)} retransmitted {when} the NACK that named it "
                f"arrived; "
                f"the bound is {bounds.retransmit_ns / 1e6:.1f} ms",
            )


def _doubts_retransmissions(view: Striped, stream: Stream) -> str | None:
    """Why nothing follows from a retransmission that was not seen, or late."""
    if view.missed or not stream.whole:
        return "not all that the sender sent was captured"
    if view.pacing:
        return f"{view.pacing} may let a packet wait for many round trips"
    return view.doubts_timers


@RULES.rule(
    "csa.asked",
    "nothing is sent again unless a NACK behind the last transmission lacks it, but for second "
    "copies of packets that were lost eight times",
    _NACKS,
)
@_of_each_stream
def _asked(lab: Understood, stream: Stream, tally: Tally) -> None:
    """Each attempt needs a NACK that was sent behind the one before it and lacks the packet."""
    view, controls = lab.view, lab.controls
    sent = view.transmissions
    mine = view.messages["stream"][sent["message"]] == stream.number
    again = np.flatnonzero(mine & (sent["attempt"] > 0))
    doubt = controls.doubts_feedback(stream)
    for number in again.tolist():
        one, before = sent[number], _attempt_before(sent, number)
        if _asked_between(controls, before, one) or _is_second_copy(controls, sent, number):
            tally.passed()
        elif doubt:
            tally.doubts(doubt)
        elif not view.messages["begun"][one["message"]]:
            tally.doubts("the message began before the capture")
        else:
            id_ = view.messages["id"][one["message"]]
            tally.failed(
                [view.frame(int(each["at"])) for each in (before, one) if each is not None],
                f"packet {one['index']} of message id {id_}: attempt {one['attempt']}, and no "
                f"NACK since the attempt before lacked it",
            )


def _attempt_before(sent: np.ndarray, number: int) -> np.void | None:
    """None: it was not captured."""
    one, before = sent[number], sent[number - 1]
    same = before["message"] == one["message"] and before["index"] == one["index"]
    return before if number and same else None


def _is_second_copy(controls: Controls, sent: np.ndarray, number: int) -> bool:
    """Whether the attempt before was asked for, of a packet that had been lost eight times."""
    before = _attempt_before(sent, number)
    if before is None or sent[number]["attempt"] < _IN_STEP_COPY:
        return False
    return _asked_between(controls, _attempt_before(sent, number - 1), before)


def _asked_between(controls: Controls, before: np.void | None, one: np.void) -> bool:
    """A NACK of a loss check counts by its arrival: the sender goes by the time since it sent."""
    since = -1 if before is None else int(before["at"])
    index = np.array([one["index"]], dtype=np.int64)
    asked = controls.asked.get(int(one["message"]), [])
    return any(
        since < (a.sent.last_received_at if _is_of_a_timer(a) else a.sent.at)
        and a.sent.at < one["at"]
        and a.names(index)[0]
        for a in asked
    )


def _is_of_a_timer(asked: Asked) -> bool:
    body = asked.sent.body
    return isinstance(body, Nack) and body.flags & _TIMER != 0


# ---------------------------------------------------------------- completion


@RULES.rule(
    "csa.complete",
    "a message is acknowledged when its bitmap is full, not before",
    "docs/explanation/csa-ud.md, Acknowledgements and silence",
)
@_of_each_stream
def _complete(lab: Understood, stream: Stream, tally: Tally) -> None:
    check_complete(lab.view, lab.controls, stream, tally)


def check_complete(view: Striped, controls: Controls, stream: Stream, tally: Tally) -> None:
    """Every packet was at the receiver's link before the acknowledgement, or not known lost."""
    acked = controls.places(controls.acked)
    messages = view.messages
    mine = (messages["stream"] == stream.number) & (acked != NEVER)
    of, within = view.packet_message, view.packet_counts
    arrived = view.packet_arrived_at < acked[of]
    there = arrived if stream.arrives else _perhaps_there(view, acked)
    have = np.bincount(of[there & within], minlength=len(messages))
    # Where nothing shows arrivals, packets that were not seen may have taken other links.
    seen = np.bincount(of[within], minlength=len(messages))
    need = messages["count"] if stream.whole else seen
    short = mine & (have < need)
    tally.passed(int((mine & ~short).sum()))
    if view.missed and short.any():
        tally.doubts(f"the capture missed {view.missed} packets", int(short.sum()))
        return
    unsure = short & ~messages["begun"]
    if unsure.any():
        tally.doubts("the message began before the capture", int(unsure.sum()))
    if view.may_be_corrupt and mine.any():
        tally.notes_that(
            "corrupted on links that were not captured, the ICRC cut: not known as lost"
        )
    if not stream.whole and mine.any():
        tally.notes_that("captured at neither end: only packets known lost count as holes")
    for number in np.flatnonzero(short & ~unsure).tolist():
        _show_hole(view, controls, number, there, tally)


def _perhaps_there(view: Striped, acked: np.ndarray) -> np.ndarray:
    """Packets of which some transmission before the acknowledgement is not known to be lost."""
    sent = view.transmissions
    alive = (sent["gone_at"] == NEVER) & (sent["at"] < acked[sent["message"]])
    there: np.ndarray = np.logical_or.reduceat(alive, view.packet_begins)
    return there


def _show_hole(
    view: Striped, controls: Controls, number: int, there: np.ndarray, tally: Tally
) -> None:
    message = view.messages[number]
    packets = view.transmissions[view.packet_begins]
    have = packets["index"][(packets["message"] == number) & there]
    have, count = have[have < message["count"]], int(message["count"])
    # The first is enough: a header may declare billions of packets.
    holes = np.setdiff1d(np.arange(min(count, len(have) + 5)), have)
    missing = count - len(have)
    ack = controls.acked[number]
    some = ", ".join(str(each) for each in holes[:4]) + (", ..." if missing > 4 else "")
    frames = [view.frame(ack.at)]
    first = packets[(packets["message"] == number) & (packets["index"] == holes[0])]
    if len(first):
        frames.insert(0, view.frame(int(first[0]["at"])))
    tally.failed(
        frames,
        f"message id {message['id']} acknowledged although {missing} of its "
        f"{count} packets were not there: {some}",
    )


# ---------------------------------------------------------------- control traffic


@RULES.rule(
    "csa.control-share",
    "control traffic keeps within its share of the data",
    "docs/howto/capture.md, Bounds of control messages",
)
@_of_each_stream
def _share(lab: Understood, stream: Stream, tally: Tally) -> None:
    """Bytes of control messages of both directions, each counted once however often seen."""
    view, controls = lab.view, lab.controls
    if stream.back is None:
        tally.doubts("the other direction was not captured")
        return
    if stream.back < stream.number and stream.back in controls.of(CSA_UD):
        return  # reported for the pair already
    pair = (stream.number, stream.back)
    if controls.failed[np.isin(view.messages["stream"], pair)].any():
        tally.doubts("messages failed: a sender without an answer asks on and on")
        return
    both = np.isin(view.stream_of, pair)
    data = _bytes(view, both & (view.kinds == DATA))
    used = _bytes(view, both & ((view.kinds == CONTROL) | (view.kinds == PATH_PROBE)))
    allowed = LEAST_BYTES + SHARE * data + _timers_bytes(view, controls, pair, both)
    share = f"{used} bytes of control for {data} of data ({used / max(data, 1):.2%})"
    if used <= allowed:
        tally.passed()
        tally.notes_that(share)
    elif data == 0:
        tally.doubts("no data was seen: a sender without an answer asks on and on")
    else:
        last = np.flatnonzero(both & (view.kinds == CONTROL))[-1]
        tally.failed([view.frame(int(view.places[last]))], f"{share}; {allowed:.0f} are allowed")


def _timers_bytes(
    view: Striped, controls: Controls, pair: tuple[int, int], both: np.ndarray
) -> int:
    """What messages, losses and timers may cost whatever the data are."""
    messages = view.messages[np.isin(view.messages["stream"], pair)]
    over = np.minimum(controls.places(controls.acked), len(view.evidence.in_time) - 1)
    over = np.maximum(over[np.isin(view.messages["stream"], pair)], messages["last_at"])
    lives_ns = view.time_ns(over) - view.time_ns(messages["first_at"])
    sent = view.transmissions
    mine = np.isin(view.messages["stream"][sent["message"]], pair)
    retransmitted = int((mine & (sent["attempt"] > 0)).sum())
    rounds = int((1 + lives_ns // view.timing.t_min_ns).sum()) + retransmitted
    places = view.places[np.flatnonzero(both)]
    span_ns = int(view.time_ns(int(places[-1]))) - int(view.time_ns(int(places[0])))
    questions = 1 + span_ns // view.timing.keepalive_interval_ns
    return MESSAGE_BYTES * len(messages) + ROUND_BYTES * rounds + KEEPALIVE_BYTES * questions


def _bytes(view: Striped, which: np.ndarray) -> int:
    """On the wire, of packets: one sighting of each."""
    rows = np.flatnonzero(which)
    stream = view.stream_of[rows].astype(np.uint64)
    qp = view.column("destination_qp", rows).astype(np.uint64)
    names = stream << np.uint64(48) | qp << np.uint64(24) | view.column("psn", rows)
    _, first = np.unique(names, return_index=True)
    return int(view.column("length", rows[first]).sum(dtype=np.int64))
