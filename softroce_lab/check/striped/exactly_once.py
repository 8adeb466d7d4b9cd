# SPDX-License-Identifier: GPL-2.0-or-later
"""Exactly once: every message arrives whole, once, and as it was sent."""

from __future__ import annotations

import dataclasses

import numpy as np

from softroce_lab.check import fault_rules
from softroce_lab.check.evidence import DUPLICATED, ends
from softroce_lab.check.striped import csa_ud
from softroce_lab.check.striped.controls import UET_ROD, Controls
from softroce_lab.check.striped.losses import Understood
from softroce_lab.check.striped.messages import DATA, NEVER, PARITY, Stream, Striped
from softroce_lab.check.striped.rows import packet_sizes
from softroce_lab.check.striped.selective_repeat import SeenPackets
from softroce_lab.check.verdict import Rules, Tally
from softroce_lab.structs import enumerators
from softroce_lab.telemetry.packets import Has

_ONCE = "docs/explanation/csa-ud.md, Packets and messages"
_ACKS = "docs/explanation/csa-ud.md, Acknowledgements and silence"
RULES = Rules()
_RESULT = enumerators("lab_operation_class")["result"]
_READ = enumerators("lab_verb")["read"]
_HALF_OF_IDS = 1 << 31
_ANSWERS_NS = 100_000_000  # far more than acknowledgements wait for one another


@RULES.rule("once.whole", "what is acknowledged was at the receiver, every packet of it", _ACKS)
def _whole(lab: Understood, tally: Tally) -> None:
    for stream in lab.view.data_streams():
        csa_ud.check_complete(lab.view, lab.controls, stream, tally)


@RULES.rule("once.acknowledged", "what is whole at the receiver is acknowledged, or refused", _ACKS)
def _acknowledged(lab: Understood, tally: Tally) -> None:
    for stream in lab.view.data_streams():
        _check_acknowledged(lab.view, lab.controls, stream, tally)


def _check_acknowledged(view: Striped, controls: Controls, stream: Stream, tally: Tally) -> None:
    """Within _ANSWERS_NS of the last packet, by a receiver that continues: it sends after that."""
    messages, of = view.messages, view.packet_message
    mine = (messages["stream"] == stream.number) & messages["begun"] & ~controls.failed
    arrived = view.packet_arrived_at
    here = (arrived != NEVER) & view.packet_is_data
    whole = mine & (np.bincount(of[here], minlength=len(messages)) == messages["count"])
    answered = controls.places(controls.acked) != NEVER
    answered |= controls.places(controls.refused) != NEVER
    tally.passed(int((whole & answered).sum()))
    silent = np.flatnonzero(whole & ~answered)
    if not len(silent):
        return
    if doubt := controls.doubts_feedback(stream):
        tally.doubts(doubt, len(silent))
        return
    last = np.flatnonzero((view.stream_of == stream.back) & ~np.isin(view.kinds, (DATA, PARITY)))
    last_ns = view.time_ns(int(view.places[last[-1]])) if len(last) else 0
    whole_at = np.zeros(len(messages), np.int64)
    np.maximum.at(whole_at, of[here], arrived[here])
    for number in silent.tolist():
        at = int(whole_at[number])
        if last_ns - view.time_ns(at) < _ANSWERS_NS:
            tally.doubts("the receiver sent nothing more, or the capture ends")
            continue
        tally.failed(
            view.frames(at, view.places[last[-1]]),
            f"message id {messages['id'][number]} was whole, and is never acknowledged",
        )


@RULES.rule("once.ack-known", "an acknowledgement is of a message that was sent", _ACKS)
def _ack_known(lab: Understood, tally: Tally) -> None:
    view, controls = lab.view, lab.controls
    for message, sent in controls.acked.items():
        stream = view.streams[int(view.messages["stream"][message])]
        early = sent.at < view.messages["first_at"][message]
        if early and view.messages["begun"][message] and stream.leaves:
            tally.failed(
                view.frames(sent.at, view.messages["first_at"][message]),
                f"message id {view.messages['id'][message]} acknowledged before it was sent",
            )
        else:
            tally.passed()
    for sent, id_ in controls.stray_acks:
        _stray(view, controls, sent.stream, sent.at, id_, tally)


def _stray(view: Striped, controls: Controls, from_: int, at: int, id_: int, tally: Tally) -> None:
    towards = view.streams[from_].back
    stream = view.streams[towards] if towards is not None else None
    if stream is None or not stream.leaves or view.missed:
        tally.doubts("not all that the sender sent was captured")
        return
    mine = (view.messages["stream"] == stream.number) & view.messages["begun"]
    ids = view.messages["id"][mine].astype(np.int64)
    newer = bool(np.any((id_ - ids) % (1 << 32) < _HALF_OF_IDS))
    if (stream.number, id_) in controls.refused_ids:
        tally.passed()
    elif newer:
        tally.failed([view.frame(at)], f"message id {id_} acknowledged, and never sent")
    else:
        tally.doubts("it may have been sent before the capture")


@RULES.rule(
    "once.told",
    "what an answer to a packet calls received was at the receiver before, and what it calls "
    "trimmed was not",
    "docs/explanation/transports.md, `irn`",
)
def _feedback(lab: Understood, tally: Tally) -> None:
    view, controls = lab.view, lab.controls
    for message, reports in controls.feedback.items():
        stream = view.streams[int(view.messages["stream"][message])]
        if not stream.arrives or view.missed:
            tally.doubts("not all that reached the receiver was captured", len(reports))
            continue
        if not view.messages["begun"][message]:
            tally.doubts("the message began before the capture", len(reports))
            continue
        packets = SeenPackets.of(view, message)
        arrivals = view.rows[(view.stream_of == stream.number) & view.taps.arrives]
        # `uet_rod` drops what comes out of order.
        may_be_dropped = controls.transports.get(stream.number) == UET_ROD
        may_be_dropped |= fault_rules.dropped_by_queues(view.evidence, arrivals) > 0
        for sent in reports:
            packet = packets.unfounded(sent)
            if packets.is_unfounded_cut(sent, may_be_dropped=may_be_dropped):
                tally.failed(
                    [view.frame(sent.at)],
                    f"packet {sent.body.wanted} of message id "  # type: ignore[union-attr]
                    f"{view.messages['id'][message]} is reported as trimmed, and was not",
                )
            elif packet is None:
                tally.passed()
            else:
                tally.failed(
                    [view.frame(sent.at)],
                    f"packet {packet} of message id {view.messages['id'][message]} is reported as "
                    "arrived, and had not come",
                )


@RULES.rule(
    "once.pulled",
    "a receiver pulls no more packets than have arrived, whole or trimmed",
    "docs/explanation/transports.md, `ndp`",
)
def _pulled(lab: Understood, tally: Tally) -> None:
    view = lab.view
    for number, pulls in lab.controls.pulls.items():
        begun = view.messages["begun"][view.messages["stream"] == number]
        if not view.streams[number].arrives or view.missed or not begun.all():
            tally.doubts("not all that reached the receiver was captured", len(pulls))
            continue
        came = (view.stream_of[view.data] == number) & view.taps.arrives[view.data]
        twice = came & view.evidence.commented(DUPLICATED)[view.rows[view.data]]
        places = np.sort(view.places[np.concatenate([view.data[came], view.data[twice]])])
        arrived = np.searchsorted(places, [sent.at for sent in pulls])
        for sent, packets in zip(pulls, arrived.tolist(), strict=True):
            pulled = sent.body.pulls  # type: ignore[union-attr]
            if pulled <= packets:
                tally.passed()
            else:
                tally.failed(
                    [view.frame(sent.at)], f"{pulled} packets were pulled, and {packets} had come"
                )


@RULES.rule(
    "once.bytes", "every sighting of a packet carries the same bytes, retransmitted or not", _ONCE
)
def _bytes(lab: Understood, tally: Tally) -> None:
    view = lab.view
    has = view.column("has", view.data)
    hashed = (has & Has.PAYLOAD_HASH != 0) & (has & Has.TRIMMED == 0)
    which = np.flatnonzero(hashed)
    if len(which) < len(has):
        tally.doubts("the snap length cut the data", len(has) - len(which))
    packet = np.repeat(view.packet_of, view.sightings)[which]
    hashes, lengths = (
        view.column(name, view.data[which]) for name in ("payload_hash", "payload_bytes")
    )
    same = packet[1:] == packet[:-1]
    differs = same & ((hashes[1:] != hashes[:-1]) | (lengths[1:] != lengths[:-1]))
    late = view.places[view.data[which[1:]]] > view.packet_arrived_at[packet[1:]]
    # Without a capture of the receiver's link, it is unknown whether a retransmission is late.
    sending = np.repeat(np.arange(len(view.begins)), view.sightings)[which]
    blind = (
        differs
        & ~view.are_arrivals_seen[view.stream_of[view.data[which[1:]]]]
        & (sending[1:] != sending[:-1])
    )
    tally.doubts(
        "whether it had arrived when it was retransmitted was not captured", int(blind.sum())
    )
    differs &= ~blind
    again = differs & _is_read(view, which[1:]) & (sending[1:] != sending[:-1])
    if again.any():
        tally.notes_that(
            f"{int(again.sum())} of READs retransmitted with other bytes: memory was read again"
        )
    differs &= ~again
    tally.passed(int((same & ~blind & ~(differs & ~late)).sum()))
    if (differs & late).any():
        tally.notes_that(
            f"{int((differs & late).sum())} retransmitted with other bytes when they had arrived: "
            "what was received behind them is written there"
        )
    for number in np.flatnonzero(differs & ~late).tolist():
        pair = view.data[which[[number, number + 1]]]
        one = view.transmissions[view.packet_begins[packet[number]]]
        tally.failed(
            view.frames(*view.places[pair]),
            f"{view.name(one)} with other bytes",
        )


def _is_read(view: Striped, which: np.ndarray) -> np.ndarray:
    """Of rows of `view.data` whether each returns what an operation READs."""
    has, operation, verb = (
        view.column(name, view.data[which]) for name in ("has", "lab_operation", "lab_verb")
    )
    is_result = (has & Has.OPERATION != 0) & (operation >> 8 == _RESULT)
    returned: np.ndarray = is_result & (verb == _READ)
    return returned


@RULES.rule(
    "once.length",
    "a packet is one of its message's, and as long as count and length leave it",
    "docs/explanation/transports.md, What all striped transports share",
)
def _length(lab: Understood, tally: Tally) -> None:
    """All packets of a message but the last are of one size, the same for all of a stream."""
    view = lab.view
    which = np.flatnonzero(view.column("has", view.data) & Has.TRIMMED == 0)
    bytes_, index, count, length = (
        view.column(name, view.data[which]).astype(np.int64)
        for name in ("payload_bytes", "lab_index", "lab_count", "lab_length")
    )
    size = packet_sizes(view)[view.stream_of[view.data[which]]]
    is_parity = np.repeat(view.transmissions["parity"], view.sightings)[which]
    wanted = np.where(index < count - 1, size, length - (count - 1) * size)
    known = (size >= 0) | (count == 1)
    # Parity is as long as the chunk that it covers, which may be shorter than a packet.
    fits = (index >= count) & (bytes_ > 0) & (~known | (bytes_ <= np.maximum(size, length)))
    wrong = np.where(is_parity, ~fits, (index >= count) | known & (bytes_ != wanted))
    tally.passed(int((known & ~wrong).sum()))
    for number in np.flatnonzero(wrong).tolist():
        what = "packet of parity" if is_parity[number] else "packet"
        of = f"{what} {index[number]} of a message of {count[number]} packets"
        if is_parity[number]:
            of += f" has {bytes_[number]} bytes"
        elif index[number] < count[number]:
            of += f" has {bytes_[number]} bytes instead of {wanted[number]}"
        tally.failed(view.frames(view.places[view.data[which[number]]]), of)


@RULES.rule(
    "once.copies",
    "a packet sent once reaches the receiver once, unless a rule duplicates it",
    _ONCE,
)
def _copies(lab: Understood, tally: Tally) -> None:
    view = lab.view
    sent = view.transmissions
    arrived = sent["arrivals"] > 0
    if not arrived.any():
        if len(sent):
            tally.doubts("the receiver's link was not captured", len(sent))
        return
    twice = arrived & (sent["arrivals"] > 1) & ~sent["duplicated"]
    tally.passed(int((arrived & ~twice).sum()))
    excuse = _who_may_duplicate(view)
    for number in np.flatnonzero(twice).tolist():
        one = sent[number]
        if excuse:
            tally.doubts(excuse)
            continue
        begin = int(view.begins[number])
        rows = view.data[begin : begin + int(view.sightings[number])]
        at = rows[view.taps.arrives[rows]]
        tally.failed(
            view.frames(*view.places[at]),
            f"{view.name(one)}, attempt {one['attempt']}, "
            f"arrived {one['arrivals']} times, and no rule duplicated it",
        )


def _who_may_duplicate(view: Striped) -> str | None:
    """Why a copy may come from a link that was not captured."""
    if view.evidence.run is not None:
        if view.evidence.rules_of_the_run("duplicate"):
            return "a rule duplicates packets on links that were not captured"
        return None
    if view.evidence.commented("duplicated").any():
        return "rules duplicate packets, perhaps on links that were not captured"
    return None


@RULES.rule("once.id", "a message id means one message as long as that is under way", _ONCE)
def _id(lab: Understood, tally: Tally) -> None:
    """Within one id all packets agree about the message."""
    view = lab.view
    message_of = np.repeat(view.transmissions["message"], view.sightings)
    wrong = np.zeros(len(view.data), dtype=np.bool_)
    for name in ("operation", "step", "message", "length", "count"):
        wrong |= view.column("lab_" + name, view.data) != view.messages[name][message_of]
    is_parity = np.repeat(view.transmissions["parity"], view.sightings)
    block, code = (view.messages[name][message_of] for name in ("block", "code"))
    due = np.where(is_parity & (block > 0), block, code)
    known = ~is_parity | (block > 0) | (code > 0)  # only parity may have been captured
    wrong |= known & (view.column("lab_code", view.data) != due)
    bad = np.unique(message_of[wrong])
    tally.passed(len(view.messages) - len(bad))
    for number in bad.tolist():
        places = view.places[view.data[np.flatnonzero(wrong & (message_of == number))[:2]]]
        first = int(view.messages["first_at"][number])
        tally.failed(
            view.frames(first, *places),
            f"message id {view.messages['id'][number]} is two messages at once",
        )
    _more_than_there_were(view, tally)


def _more_than_there_were(view: Striped, tally: Tally) -> None:
    """A message that was sent under two ids was delivered twice."""
    run = view.evidence.run
    if run is None or run.only is None or "status" not in run.messages:
        return
    known, sent = len(run.messages["status"]), len(view.messages)
    if sent > known:
        newest = view.messages[np.argmax(view.messages["first_at"])]
        tally.failed(
            view.frames(newest["first_at"]),
            f"{sent} message ids were sent, and the run had {known} messages",
        )


# ---------------------------------------------------------------- run directories


@dataclasses.dataclass(frozen=True, slots=True)
class _Counted:
    """What receivers counted of all that some streams brought them."""

    streams: list[Stream]
    counters: list[dict[str, int]]
    emulator_drops: int
    short_of_it: int  # captured where the last link begins, and lost or still on it in the end

    def sum(self, *names: str) -> int:
        return sum(each.get(name, 0) for each in self.counters for name in names)


def _counted_by(view: Striped) -> _Counted | None:
    """None: the capture is not of one run, or that run's figures tell nothing of it."""
    run = view.evidence.run
    if run is None or run.only is None or not run.only.get("counters"):
        return None
    # Only hosts whose last link was captured; deliveries to others are unknown.
    seen = {ends(each.name or "")[1] for each in view.evidence.capture.interfaces}
    counters = [each for host, each in run.only["counters"].items() if host in seen]
    streams = [stream for stream in view.data_streams() if stream.arrives]
    if not counters or not streams:
        return None
    short_of_it = sum(
        link.get("on_its_way", 0) + sum((link.get("wire") or {}).get(name, 0) for name in _CUT)
        for link in run.links.get(str(run.only.get("run")), [])
        if ends(link["name"])[1] in run.manifest.get("hosts", [])
    )
    return _Counted(streams, counters, run.only.get("emulator_drops", 0), short_of_it)


_CUT = ("dropped_by_queue", "trimmed")  # of a link: packets whose data goes no further
_UNPLACED = ("rx_no_recv", "rx_slot_busy", "rx_stale_generation", "rx_message_too_long")


@RULES.rule(
    "once.counted",
    "the receiver counted as duplicates what came to it twice",
    "docs/reference/run-directory.md",
)
def _counted(lab: Understood, tally: Tally) -> None:
    view = lab.view
    of_packet = view.messages["stream"][view.packet_message]
    of = view.messages["stream"][view.transmissions["message"]]
    rows = view.rows[view.data]
    copied = view.taps.arrives[view.data] & view.evidence.commented(DUPLICATED)[rows]
    copied &= ~view.evidence.is_lost[rows]
    stream_of = view.stream_of[view.data]
    run = _counted_by(view)
    if run is None:
        return
    if view.missed:
        tally.doubts("not all that reached the receiver was captured")
        return
    if view.may_be_corrupt:
        tally.doubts("a rule flips bits, and the snap length cut the ICRCs that would tell")
        return
    if lost := run.emulator_drops + run.sum(*_UNPLACED):
        tally.doubts(f"{lost} packets were captured at the receiver and not placed by it")
        return
    numbers = [stream.number for stream in run.streams]
    arrivals = int(view.transmissions["arrivals"][np.isin(of, numbers)].sum())
    arrivals += int(copied[np.isin(stream_of, numbers)].sum())
    there = view.packet_arrived_at[np.isin(of_packet, numbers)] != NEVER
    twice = arrivals - int(there.sum())
    # A packet that was dropped out of order had arrived when it came again.
    counted = run.sum("rx_duplicate", "rx_out_of_order")
    # What was restored is a duplicate when it comes; parity of a complete message is none.
    most = twice + run.sum("rx_restored")
    if twice - run.short_of_it - run.sum("rx_late_parity") <= counted <= most:
        tally.passed()
    else:
        tally.failed([], f"{twice} packets came again, {counted} were counted as duplicates")


@RULES.rule(
    "once.verified",
    "the bytes of the run were compared, and are those that were sent",
    "docs/reference/run-directory.md",
)
def _verified(lab: Understood, tally: Tally) -> None:
    run = lab.view.evidence.run
    if run is None or "runs" not in run.manifest:
        return
    for document in run.runs:
        digests = document.get("sha256", {})
        same = digests.get("sent") == digests.get("received")
        if run.only is None:
            same = same and digests.get("sent") is not None
        elif document.get("verified") is None:
            tally.doubts("the run carried no bytes, or did not compare them (payload: verify)")
            continue
        if document.get("verified") and same:
            tally.passed()
        else:
            tally.failed([], f"{document.get('transport')}: the bytes received are not those sent")


@RULES.rule(
    "once.ended-well", "no message of the run ended in error", "docs/reference/run-directory.md"
)
def _ended_well(lab: Understood, tally: Tally) -> None:
    run = lab.view.evidence.run
    if run is None or "runs" not in run.manifest:
        return
    status = run.messages.get("status")
    if status is None:
        tally.doubts("there is no messages.parquet")
        return
    failed = int(np.count_nonzero(status))
    tally.passed(len(status) - failed)
    if failed:
        tally.failed([], f"{failed} messages ended in error", failed)
