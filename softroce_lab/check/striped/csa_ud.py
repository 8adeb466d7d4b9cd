# SPDX-License-Identifier: GPL-2.0-or-later
"""CSA-UD (docs/explanation/csa-ud.md): the receiver checks, nothing is retransmitted unasked, and
numbers on paths are counted, probed and settled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from softroce_lab.check.striped.controls import CSA_UD, Asked, ControlMessage, Controls
from softroce_lab.check.striped.losses import Bounds, Losses, Understood
from softroce_lab.check.striped.messages import (
    CONTROL,
    DATA,
    NEVER,
    PARITY,
    PATH_PROBE,
    Places,
    Stream,
    Striped,
)
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
_NUMBERS = 1 << 24  # a path has, then they wrap
_BEFORE_NAMED = 24  # bytes of a probe's body: a timestamp, counts of control packets, an id
_PATHS = 16  # a header names one of the source ports of its path: p, p + 16, p + 32 ...


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
    "a lost packet is named by a NACK within the bound, restored from parity, or its message ends "
    "in error",
    _NACKS,
)
@_of_each_stream
def _nack(lab: Understood, stream: Stream, tally: Tally) -> None:
    view, losses = lab.view, lab.losses
    bound_ns = lab.bounds(stream).nack_ns
    refused = lab.controls.places(lab.controls.refused)
    doubt = lab.controls.doubts_feedback(stream) or view.doubts_timers
    early = restored = 0
    for number in _mine(losses, stream):
        if losses.restored[number]:
            tally.passed()
            restored += 1
            continue
        if _need_not_follow(lab, number):
            tally.passed()
            early += not lab.controls.failed[losses.message[number]]
            continue
        gone_at = int(losses.gone_at[number])
        until = min(int(losses.asked_at[number]), int(refused[losses.message[number]]))
        why = "another copy may have arrived" if losses.unsure[number] else doubt
        waited_ns = _too_late(lab, number, tally, (gone_at, until), bound_ns, why)
        if waited_ns is not None:
            when = f"after {waited_ns / 1e6:.1f} ms" if until != NEVER else "never"
            tally.failed(
                view.frames(gone_at, until),
                f"{_named(view, losses, number)} was lost and asked for {when}; "
                f"the bound is {bound_ns / 1e6:.1f} ms",
            )
    if early:
        tally.notes_that(f"{early} were asked for before they were lost, and retransmitted for it")
    if restored:
        tally.notes_that(f"parity restored {restored}")


def _need_not_follow(lab: Understood, number: int) -> bool:
    """Whether no NACK need follow this loss.

    Its message failed, or the next attempt follows a NACK from before the loss.
    """
    losses, sent = lab.losses, lab.view.transmissions
    if lab.controls.failed[losses.message[number]]:
        return True
    if not losses.retransmitted_at[number] < losses.asked_at[number]:
        return False
    of = losses.of[number]
    return _asked_between(lab.controls, sent[of], sent[of + 1])


def _too_late(
    lab: Understood,
    number: int,
    tally: Tally,
    places: tuple[int, int],
    bound_ns: int,
    doubt: str | None,
) -> int | None:
    """Decides whether a loss was dealt with in time, from one place to another, or to the end.

    How long it took, ns, if that is a violation, which is not counted yet.
    """
    view, (begin, until) = lab.view, places
    end_ns = view.end_ns if until == NEVER else int(view.time_ns(until))
    waited_ns = end_ns - int(view.time_ns(begin))
    if until != NEVER and (waited_ns <= bound_ns or not view.stamped):
        tally.passed()
    elif doubt:
        tally.doubts(doubt)
    elif waited_ns <= bound_ns and lab.losses.message[number] not in lab.controls.acked:
        tally.doubts("the capture ends too soon after it")
    else:
        return waited_ns
    return None


@RULES.rule(
    "csa.retransmit", "what a NACK names is sent again within the bound, if it is lost", _NACKS
)
@_of_each_stream
def _retransmit(lab: Understood, stream: Stream, tally: Tally) -> None:
    """From a NACK's arrival at the sender, so only where it was captured there."""
    view, losses = lab.view, lab.losses
    bound_ns = lab.bounds(stream).retransmit_ns
    refused = lab.controls.places(lab.controls.refused)
    doubt = _doubts_retransmissions(view, stream)
    for number in _mine(losses, stream):
        if losses.restored[number] or _need_not_follow(lab, number):
            tally.passed()
            continue
        if losses.asked_at[number] == NEVER:
            continue  # the rule above
        heard_at = int(losses.last_received_at[number])
        until = min(int(losses.retransmitted_at[number]), int(refused[losses.message[number]]))
        if heard_at == NEVER:
            if until != NEVER:
                tally.passed()
            else:
                tally.doubts("no NACK was seen to reach the sender")
            continue
        why = "an earlier copy may have arrived" if losses.unsure[number] else doubt
        waited_ns = _too_late(lab, number, tally, (heard_at, until), bound_ns, why)
        if waited_ns is not None:
            when = f"{waited_ns / 1e6:.1f} ms after" if until != NEVER else "never after"
            places = (int(losses.gone_at[number]), heard_at, until)
            tally.failed(
                view.frames(*places),
                f"{_named(view, losses, number)} retransmitted {when} the NACK that named it "
                f"arrived; the bound is {bound_ns / 1e6:.1f} ms",
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
                view.frames(*(each["at"] for each in (before, one) if each is not None)),
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
    restored = view.restored_at < acked
    have[restored] = _with_block(view, there & within)[restored]
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


def _with_block(view: Striped, there: np.ndarray) -> np.ndarray:
    """How many packets of data each message has, if parity restored what its last block lacked."""
    messages, of = view.messages, view.packet_message
    begin = messages["count"].astype(np.int64) - messages["block"]
    index = view.transmissions["index"][view.packet_begins]
    before = there & (index < begin[of])
    with_block: np.ndarray = np.bincount(of[before], minlength=len(messages)) + messages["block"]
    return with_block


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
        tally.failed(view.frames(view.places[last]), f"{share}; {allowed:.0f} are allowed")


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


# ---------------------------------------------------------------- numbers on paths


@RULES.rule(
    "csa.numbers",
    "packets of data and parity, and probes, of a path count up by one, in one connection epoch",
    "docs/explanation/csa-ud.md, Path numbers",
)
@RULES.rule(
    "csa.probes",
    "a sender that falls silent has probed each path that carried data, or named it in a probe",
    "docs/explanation/csa-ud.md, Path probe",
)
@RULES.rule(
    "csa.settled",
    "a NACK settles no number beyond those that came, none that it settled goes back, and it calls "
    "no packet trimmed of which nothing came",
    "docs/explanation/csa-ud.md, NACK",
)
def _path_numbers(lab: Understood, numbers: Tally, probes: Tally, settled: Tally) -> None:
    view, controls = lab.view, lab.controls
    numbered = np.isin(view.kinds, (DATA, PARITY, PATH_PROBE))
    for number in sorted(controls.of(CSA_UD) - controls.cleared):
        stream = view.streams[number]
        mine = np.flatnonzero(numbered & (view.stream_of == number))
        sent = mine[view.taps.leaves[mine]]
        if len(sent) and not view.missed:
            _numbers(view, sent, numbers)
            _probes(view, stream, sent, probes)
        _settled(view, controls, stream, mine, settled)


def _by_path(view: Striped, which: Places) -> Iterator[tuple[int, Places]]:
    paths = view.column("lab_path", which) % _PATHS
    for path in np.unique(paths).tolist():
        yield path, which[paths == path]


def _numbers(view: Striped, sent: Places, tally: Tally) -> None:
    epochs = view.column("lab_epoch", sent)
    other = sent[epochs != epochs[0]]
    if len(other):
        text = f"epoch {int(view.column('lab_epoch', other)[0])} among packets of {int(epochs[0])}"
        tally.failed(view.frames(*view.places[[sent[0], other[0]]]), text, len(other))
    for path, of_path in _by_path(view, sent):
        numbers: Places = view.column("lab_number", of_path).astype(np.int64)
        steps = (numbers[1:] - numbers[:-1]) % _NUMBERS
        wrong = np.flatnonzero(steps != 1)
        tally.passed(len(of_path) - len(wrong))
        for at in wrong.tolist():
            text = f"path {path}: number {numbers[at + 1]} follows {numbers[at]}"
            tally.failed(view.frames(*view.places[of_path[at : at + 2]]), text)


def _probes(view: Striped, stream: Stream, sent: Places, tally: Tally) -> None:
    """Where nothing left for longer than the bound, a probe was the last on each path, or named the
    number behind it.
    """
    doubt = "packets wait for contexts" if view.waits_for_contexts else view.doubts_timers
    if view.pacing and not doubt:  # who may not send probes after SRTT + 4 RTTVAR, of full queues
        doubt = f"{view.pacing} may let a packet wait for many round trips"
    if doubt or not view.stamped:
        tally.doubts(doubt or "frames have no times")
        return
    bound_ns = Bounds.of(view, stream).probe_ns
    times = view.time_ns(view.places[sent])
    silent = np.flatnonzero(np.diff(np.append(times, view.end_ns)) > bound_ns)
    kinds = view.column("lab_kind", sent)
    probes = kinds == PATH_PROBE
    by_others = _named_in_probes(view, sent[probes])
    paths = view.column("lab_path", sent) % _PATHS
    numbers = view.column("lab_number", sent).astype(np.int64)
    last = np.full(int(paths.max()) + 1, -1)  # probe, or data, of each path
    last_numbered = last.copy()
    begin = 0

    def is_named(data: int) -> bool:
        """Whether a probe on another path names the number behind it, or behind its parity."""
        newest = int(last_numbered[paths[data]])
        behind = range(1, (int(numbers[newest]) - int(numbers[data])) % _NUMBERS + 2)
        return any(
            (int(paths[data]), (int(numbers[data]) + n) % _NUMBERS) in by_others for n in behind
        )

    for end in silent.tolist():
        part = np.arange(begin, end + 1)
        last_numbered[paths[part]] = part  # of several the last one stays
        part = part[kinds[part] != PARITY]
        last[paths[part]] = part
        open_ = [n for n in last[last >= 0].tolist() if not probes[n] and not is_named(n)]
        begin = end + 1
        if not open_:
            tally.passed()
            continue
        text = f"no probe within {bound_ns / 1e6:.3f} ms behind the last data on path"
        named = ", ".join(str(int(paths[n])) for n in open_)
        tally.failed(view.frames(*view.places[sent[open_]]), f"{text} {named}")


def _named_in_probes(view: Striped, probes: Places) -> set[tuple[int, int]]:
    """The paths that probes name beside their own, each with its next number."""
    found: set[tuple[int, int]] = set()
    rows = view.evidence.packets[view.rows[probes]]
    for number, length in zip(rows["number"].tolist(), rows["lab_length"].tolist(), strict=True):
        body = view.evidence.capture.payload(number)[:length]
        named = body[_BEFORE_NAMED:]
        words = np.frombuffer(named[: len(named) // 4 * 4], ">u4").tolist()
        found.update((word >> 24, word % _NUMBERS) for word in words)
    return found


def _settled(view: Striped, controls: Controls, stream: Stream, mine: Places, tally: Tally) -> None:
    nacks = [each for each in controls.sent if each.stream == stream.back]
    nacks = [each for each in nacks if isinstance(each.body, Nack)]
    if not nacks:
        return
    if not stream.whole or view.missed:
        tally.doubts("not all that came to the receiver was captured", len(nacks))
        return
    lost = view.evidence.is_lost[view.rows[mine]]
    seen = mine[view.taps.arrives[mine] & ~lost] if stream.arrives else mine
    by_others = _named_by(view, seen)
    came = {
        path: _progress(view, of_path, by_others.get(path, []))
        for path, of_path in _by_path(view, seen)
    }
    places = _places_of_numbers(view, seen)
    before: ControlMessage | None = None
    for nack in nacks:
        trimmed = [each for each in _body_of(nack).trimmed if places.get(each, NEVER) > nack.at]
        wrong = [path for path in came if _beyond(nack, path, *came[path])]
        back = [] if before is None else [p for p in came if _ahead(before, nack, p) > 0]
        if wrong or back:
            what = "beyond what had come" if wrong else "behind what was settled before"
            text = f"path {(wrong or back)[0]}: a NACK settles numbers {what}"
            tally.failed([view.frame(nack.at)], text)
        elif trimmed:
            path, packet = trimmed[0]
            text = f"path {path}: a NACK calls number {packet} trimmed, of which nothing had come"
            tally.failed([view.frame(nack.at)], text)
        else:
            tally.passed()
        before = nack


def _places_of_numbers(view: Striped, seen: Places) -> dict[tuple[int, int], int]:
    """Where the packet of each path and number came.

    Whether it was trimmed is not known: it is captured before the last queue.
    """
    paths = (view.column("lab_path", seen) % _PATHS).tolist()
    numbers = view.column("lab_number", seen).tolist()
    found: dict[tuple[int, int], int] = {}
    for path, number, place in zip(paths, numbers, view.places[seen].tolist(), strict=True):
        found.setdefault((path, number), place)  # of a duplicated packet the first
    return found


def _named_by(view: Striped, seen: Places) -> dict[int, list[tuple[int, int]]]:
    """Of each path the places of probes on others that name it, and the number before its next."""
    found: dict[int, list[tuple[int, int]]] = {}
    probes = seen[view.column("lab_kind", seen) == PATH_PROBE]
    for each in probes.tolist():
        place = int(view.places[each])
        for path, following in _named_in_probes(view, np.array([each])):
            found.setdefault(path, []).append((place, (following - 1) % _NUMBERS))
    return found


def _progress(
    view: Striped, of_path: Places, by_others: list[tuple[int, int]]
) -> tuple[Places, npt.NDArray[np.int64]]:
    """Places, and the number behind the highest until there, without wrapping."""
    places: Places = np.append(view.places[of_path], [place for place, _ in by_others])
    numbers = np.append(
        view.column("lab_number", of_path).astype(np.int64), [number for _, number in by_others]
    ).astype(np.int64)
    order = np.argsort(places, kind="stable")
    unwrapped = np.unwrap(numbers[order], period=_NUMBERS)
    return places[order].astype(np.int64), np.maximum.accumulate(unwrapped) + 1


def _beyond(nack: ControlMessage, path: int, places: Places, behind: npt.NDArray[np.int64]) -> bool:
    at = int(np.searchsorted(places, nack.at)) - 1
    if at < 0:
        return False  # nothing of the path was captured before
    return 0 < (_settled_of(nack, path) - int(behind[at])) % _NUMBERS < _NUMBERS // 2


def _ahead(before: ControlMessage, nack: ControlMessage, path: int) -> int:
    """How far the first settles more than the second; 0: not at all."""
    ahead = (_settled_of(before, path) - _settled_of(nack, path)) % _NUMBERS
    return ahead if ahead < _NUMBERS // 2 else 0


def _settled_of(nack: ControlMessage, path: int) -> int:
    return _body_of(nack).settled[path]


def _body_of(nack: ControlMessage) -> Nack:
    assert isinstance(nack.body, Nack)  # noqa: S101
    return nack.body
