# SPDX-License-Identifier: GPL-2.0-or-later
"""What a requester sends: PSNs, opcodes and lengths, and what it does about losses and refusals."""

from __future__ import annotations

import numpy as np

from softroce_lab.check.evidence import Indices, Mask
from softroce_lab.check.opcodes import ACK, CREDITS, IMMEDIATE, RNR_NS, UNLIMITED, Family
from softroce_lab.check.rc.case import BEGINS_BEHIND, Case, Messages, named, ranged
from softroce_lab.check.rc.packets import Answers, Requests, Seen
from softroce_lab.check.verdict import Rules, Tally
from softroce_lab.faults.opcodes import opcode_name
from softroce_lab.telemetry.packets import Has, Packets

RULES = Rules()
_SAME = ("opcode", "payload_bytes", "remote_address", "rkey", "dma_length", "swap_or_add",
         "compare", "immediate")  # fmt: skip
_LOST_BEFORE = "the packets before may have been lost before the capture (--at)"
_LOST_BEHIND = "an acknowledgement may have been lost behind the capture (--at)"
# Most time from receipt of a response to the reaction, where the capture does not show it.
_SLACK_NS = 100_000_000


# ---------------------------------------------------------------- PSNs


@RULES.rule(
    "rc.psn-continuity",
    "requests have successive PSNs, a READ as many as its response has packets; none is skipped "
    "or given twice",
    "IBA 9.7.2, 9.7.3.1",
)
@RULES.rule(
    "integrity.unseen",
    "the capture has every request that was acknowledged",
    "docs/howto/capture.md, What is in a file",
    is_proven=True,
)
def check_continuity(case: Case) -> None:
    """Each new request follows the one before it; holes are explained, or are violations."""
    seen, tally = case.near_requester, case.tally["psn-continuity"]
    requests = seen.requests
    if not len(requests):
        return
    new = np.flatnonzero(requests.is_new)
    gaps = new[requests.psn[new] > requests.top[new]]
    tally.passed(len(new) - len(gaps))
    if seen.at_requester:
        for at in gaps.tolist():
            _skipped(requests, at, tally)
    elif len(gaps):
        tally.doubts("gaps that were filled later: lost before the capture, or skipped", len(gaps))
    _check_overlaps(case, requests, tally)
    _check_holes(case, tally, case.tally["unseen"])


def _skipped(requests: Requests, at: int, tally: Tally) -> None:
    missing = ranged(int(requests.top[at]), int(requests.psn[at]))
    tally.failed([requests.number[at]], f"{missing} skipped before this packet left")


def _check_overlaps(case: Case, requests: Requests, tally: Tally) -> None:
    """PSNs of a READ's response that another request uses, too: both requests are there."""
    once = requests.once
    one, other = once[:-1], once[1:]
    overlaps = np.flatnonzero(requests.psn[other] < requests.end[one])
    if not case.knows_path_mtu:
        tally.proven.doubts(
            "how many PSNs a READ takes, no packet tells (--path-mtu)", len(overlaps)
        )
        return
    for at in overlaps.tolist():
        tally.proven.failed(
            (requests.number[one[at]], requests.number[other[at]]),
            f"{named(int(requests.psn[other[at]]))} is one of the READ's, and of another request",
        )


def _check_holes(case: Case, tally: Tally, unseen: Tally) -> None:
    """PSNs that never came: skipped by the requester, lost before the capture, or missed by it.

    If the responder never acknowledged a PSN, it may have been lost, unless the capture was taken
    where the requester is. If it did, the capture missed it, unless the responder's MSN shows that
    no message was there: then the requester skipped it, and the responder let it.
    """
    requests = case.near_responder.requests
    messages, around = Messages(case.near_responder), _Around(requests)
    before = int(case.near_responder.answers.through[case.asked_before].max(initial=0))
    for begin, end in requests.holes:
        if case.acknowledged < end:
            tally.doubts("PSNs that were neither seen nor acknowledged")
        elif broken := case.broken_between(begin, end):
            case.tally["in-order"].failed(
                broken, f"{ranged(begin, end)} acknowledged, and the ICRC was wrong"
            )
        elif end <= before:
            unseen.doubts(BEGINS_BEHIND)
        elif around.begins_behind(end) and messages.has_none_between(begin, end):
            tally.failed(
                around.of(begin, end),
                f"{ranged(begin, end)} skipped, and by the MSN no message was there",
            )
        else:
            unseen.failed(
                around.of(begin, end), f"{ranged(begin, end)} acknowledged, and not in the capture"
            )
    unseen.passed(int(np.count_nonzero(requests.end[requests.once] <= case.acknowledged)))


class _Around:
    """The packets before and behind a hole."""

    def __init__(self, requests: Requests) -> None:
        once = requests.once
        self._number = requests.number[once]
        self._psn, self._end = requests.psn[once], requests.end[once]
        self._begins = requests.begins[once]

    def begins_behind(self, end: int) -> bool:
        """Whether a message begins behind the hole: else it began in it."""
        behind = int(np.searchsorted(self._psn, end))
        return behind < len(self._begins) and bool(self._begins[behind])

    def of(self, begin: int, end: int) -> tuple[int, int]:
        most = len(self._number) - 1
        before, behind = (
            min(int(np.searchsorted(column, psn)), most)
            for column, psn in ((self._end, begin), (self._psn, end))
        )
        return int(self._number[before]), int(self._number[behind])


# ---------------------------------------------------------------- what packets contain


@RULES.rule(
    "rc.opcode-sequence",
    "First, Middle and Last of one operation follow each other; only a Last or an Only ends",
    "IBA 9.7.4.1, opcode sequence",
    is_proven=True,
)
def check_opcodes(case: Case) -> None:
    check_sequence(case.near_requester.requests, case.tally["opcode-sequence"])


def check_sequence(requests: Requests, tally: Tally) -> None:
    """The same, of requests of any sender."""
    bad, checked = _out_of_sequence(requests)
    tally.passed(checked - len(bad))
    for one, other in bad:
        stated = " and ".join(opcode_name(int(requests.opcode[each])) for each in (one, other))
        tally.failed(
            (requests.number[one], requests.number[other]),
            f"{stated} follow each other at {named(int(requests.psn[other]))}",
        )


def _out_of_sequence(requests: Requests) -> tuple[list[tuple[int, int]], int]:
    """Neighbours by PSN that may not be neighbours, and how many there are."""
    once = requests.once
    one, other = once[:-1], once[1:]
    follows = requests.end[one] == requests.psn[other]
    goes_on = ~requests.begins[other] & (requests.family[one] == requests.family[other])
    fine = np.where(requests.ends[one], requests.begins[other], goes_on)
    wrong = np.flatnonzero(follows & ~fine)
    pairs = list(zip(one[wrong].tolist(), other[wrong].tolist(), strict=True))
    return pairs, int(np.count_nonzero(follows))


@RULES.rule(
    "rc.length",
    "First and Middle packets are as long as the path MTU, Last and Only not longer, and a WRITE's "
    "add up to its RETH's DMA length",
    "IBA 9.7.4.1.6",
    is_proven=True,
)
def check_lengths(case: Case) -> None:
    seen = case.near_requester
    check_packet_lengths(seen.requests, seen.path_mtu, case.tally["length"])
    check_message_lengths(seen.requests, case.tally["length"])


def check_packet_lengths(requests: Requests, mtu: int, tally: Tally) -> None:
    carries = np.isin(requests.family, (Family.SEND, Family.WRITE))
    once = requests.once[carries[requests.once]]
    size, begins, ends = (
        column[once] for column in (requests.payload_bytes, requests.begins, requests.ends)
    )
    fits = np.where(ends, size <= mtu, size == mtu) & (begins | ~ends | (size > 0))
    tally.passed(int(np.count_nonzero(fits)))
    for at in once[~fits].tolist():
        tally.failed(
            [requests.number[at]],
            f"{opcode_name(int(requests.opcode[at]))} of {requests.payload_bytes[at]} bytes at "
            f"{named(int(requests.psn[at]))}, where the path MTU is {mtu}",
        )


def check_message_lengths(requests: Requests, tally: Tally) -> None:
    """WRITEs that were seen from First to Last, or Only."""
    once = requests.once
    if not len(once):
        return
    breaks = requests.begins[once].copy()
    breaks[1:] |= requests.psn[once][1:] != requests.end[once][:-1]
    breaks[0] = True
    starts = np.flatnonzero(breaks)
    sums = np.add.reduceat(requests.payload_bytes[once], starts)
    first, last = once[starts], once[np.append(starts[1:], len(once)) - 1]
    whole = requests.begins[first] & requests.ends[last]
    whole &= (requests.family[first] == Family.WRITE) & (requests.family[last] == Family.WRITE)
    wrong = np.flatnonzero(whole & (sums != requests.dma_length[first]))
    tally.passed(int(np.count_nonzero(whole)) - len(wrong))
    for at in wrong.tolist():
        tally.failed(
            (requests.number[first[at]], requests.number[last[at]]),
            f"a WRITE of {requests.dma_length[first[at]]} bytes, by its RETH, carries {sums[at]}",
        )


@RULES.rule(
    "rc.retransmit-same",
    "a PSN that is sent again carries the same operation, addresses and payload",
    "IBA 9.7.3.2, C9-71",
    is_proven=True,
)
def check_again(case: Case) -> None:
    """Each retransmitted packet, with the one before it of the same PSN.

    Its payload may differ if the responder acknowledged the packet before: it discards duplicates
    (IBA 9.7.5.1.3). A ring collective overwrites its buffer with the next step's data: that data
    proves receipt of the earlier step, before an acknowledgement arrives.
    """
    requests, tally = case.near_requester.requests, case.tally["retransmit-same"]
    order = np.lexsort((requests.place, requests.psn))
    same = np.flatnonzero(requests.psn[order][1:] == requests.psn[order][:-1])
    one, other = order[same], order[same + 1]
    differs = _differences(case.evidence.packets, requests.rows[one], requests.rows[other])
    harmless = (differs == 1 << len(_SAME)) & _was_there(case, requests, other)
    if harmless.any():
        tally.notes_that("payloads that were overwritten after the responder had them")
    differs[harmless] = 0
    tally.passed(int(np.count_nonzero(differs == 0)))
    for at in np.flatnonzero(differs).tolist():
        bits = int(differs[at])
        names = [name for bit, name in enumerate((*_SAME, "payload")) if bits >> bit & 1]
        tally.failed(
            (requests.number[one[at]], requests.number[other[at]]),
            f"{named(int(requests.psn[one[at]]))} sent again with another "
            + " and ".join(name.replace("_", " ") for name in names),
        )
    _check_rest(case, requests, tally)


def _was_there(case: Case, requests: Requests, again: Indices) -> Mask:
    """Whether the responder had acknowledged packets before they were sent again."""
    answers = case.near_responder.answers
    through = np.maximum.accumulate(np.concatenate(([0], answers.through)))
    stated = through[np.searchsorted(answers.place, requests.place[again])]
    there: Mask = stated > requests.psn[again]
    return there


def _differences(packets: Packets, one: Indices, other: Indices) -> Indices:
    """For each pair a bit for each column that differs, and one for the payload."""
    differs = np.zeros(len(one), np.int64)
    for bit, name in enumerate(_SAME):
        column = packets[name]
        differs |= (column[one] != column[other]).astype(np.int64) << bit
    hashed = packets["has"][one] & packets["has"][other] & Has.PAYLOAD_HASH != 0
    payload = packets["payload_hash"]
    differs |= (hashed & (payload[one] != payload[other])).astype(np.int64) << len(_SAME)
    return differs


def _check_rest(case: Case, requests: Requests, tally: Tally) -> None:
    """READs that request the rest of an earlier one: its remaining range."""
    reads = requests.once[requests.family[requests.once] == Family.READ]
    if not len(reads):
        return
    is_read = requests.family == Family.READ
    whole = np.searchsorted(requests.psn[reads], requests.psn, "right") - 1
    into = requests.psn - requests.psn[reads][np.maximum(whole, 0)]
    left = requests.end[reads][np.maximum(whole, 0)] - requests.psn
    rest = np.flatnonzero(is_read & (whole >= 0) & (into > 0) & (left > 0))
    if not case.knows_path_mtu:
        tally.doubts("how much a READ's packets carry, no packet tells (--path-mtu)", len(rest))
        return
    mtu, address = case.near_requester.path_mtu, case.evidence.packets["remote_address"]
    for at in rest.tolist():
        of = reads[whole[at]]
        offset = int(into[at]) * mtu
        at_address = int(address[requests.rows[of]]) + offset
        fits = int(address[requests.rows[at]]) == at_address
        if fits and requests.dma_length[at] == requests.dma_length[of] - offset:
            tally.passed()
        else:
            tally.failed(
                (requests.number[of], requests.number[at]),
                f"a READ asked for again from {named(int(requests.psn[at]))} on, of other bytes",
            )


# ---------------------------------------------------------------- losses and refusals


class _Acknowledged:
    """The oldest outstanding request at any time: by responses, and by missing results.

    An acknowledgement of what comes behind a READ whose response is missing is a NAK of that one
    (IBA 9.7.5.1.4): whether it also stands for what lies between is the requester's affair. So
    there is a least such PSN, and a greatest.
    """

    def __init__(self, seen: Seen) -> None:
        requests, answers = seen.requests, seen.answers
        arrivals = ~answers.lost
        self._first = int(requests.psn[0]) if len(requests) else 0
        self._results, self._taken = _results(requests, answers)
        self._place = answers.place[arrivals]
        through = answers.through[arrivals]
        self._greatest = np.maximum.accumulate(through)
        # Right after each response, which has been processed by then.
        self._least = np.maximum.accumulate(self._held_up(through, self._place + 1))

    def greatest(self, place: Indices) -> Indices:
        return self._held_up(self._last(self._greatest, place), place)

    def least(self, place: Indices) -> Indices:
        return self._last(self._least, place)

    def _last(self, values: Indices, place: Indices) -> Indices:
        if not len(values):
            return np.full(len(place), self._first)
        before = np.searchsorted(self._place, place)
        return np.where(before, values[np.maximum(before - 1, 0)], self._first)

    def _held_up(self, through: Indices, place: Indices) -> Indices:
        """By the first result that is missing."""
        if not len(self._results):
            return through
        missing = np.searchsorted(self._taken, place)
        last = len(self._results) - 1
        awaited = np.where(missing <= last, self._results[np.minimum(missing, last)], through)
        return np.minimum(through, awaited)


def _results(requests: Requests, answers: Answers) -> tuple[Indices, Indices]:
    """PSNs of results in order, and the place in time at which each was taken: in order only.

    As many as can have been taken, and the next one: a READ may request millions.
    """
    once = requests.once
    wanted = once[np.isin(requests.family[once], (Family.READ, Family.ATOMIC))]
    came = np.flatnonzero(answers.is_result & ~answers.lost)
    ends = np.cumsum(requests.end[wanted] - requests.psn[wanted])
    ends = np.minimum(ends, len(came) + 1)
    counts = np.diff(ends, prepend=0)
    starts = np.repeat(requests.psn[wanted] - ends + counts, counts)
    psns: Indices = starts + np.arange(int(counts.sum()))
    awaited = psns.tolist()
    taken: list[int] = []
    for psn, place in zip(answers.psn[came].tolist(), answers.place[came].tolist(), strict=True):
        if len(taken) < len(awaited) and psn == awaited[len(taken)]:
            taken.append(place)
    never = np.full(len(psns) - len(taken), np.iinfo(np.int64).max)
    return psns, np.concatenate((np.array(taken, np.int64), never))


@RULES.rule(
    "rc.go-back-n",
    "after a NAK or a timeout requests are sent again from the oldest that is not acknowledged, "
    "all of them",
    "IBA 9.7.5.2.2, 9.7.6.1.3, 9.9.2.4.1",
)
def check_go_back(case: Case) -> None:
    seen, tally = case.near_requester, case.tally["go-back-n"]
    requests = seen.requests
    jumps = _jumps(requests)
    acknowledged = _Acknowledged(seen)
    least, greatest = (
        each(requests.place[jumps]).tolist() for each in (acknowledged.least, acknowledged.greatest)
    )
    for at, low, high in zip(jumps.tolist(), least, greatest, strict=True):
        psn = int(requests.psn[at])
        if low <= psn <= high or requests.psn[at - 1] < psn <= high:
            tally.passed()
        elif psn > high and not seen.at_requester:
            tally.doubts(_LOST_BEFORE)
        elif psn <= high and not (seen.at_requester and _knew(seen, at)):
            tally.doubts(_LOST_BEHIND)
        else:
            why = (
                f"where {named(high)} is the oldest not acknowledged"
                if psn > high
                else f"though all before {named(low)} was acknowledged"
            )
            tally.failed(
                (*_reported(seen, at), requests.number[at]), f"sent again from {named(psn)}, {why}"
            )


def _jumps(requests: Requests) -> Indices:
    """Requests that neither follow the one before them nor leave something out for good."""
    goes_on = requests.psn[1:] == requests.end[:-1]
    skips = requests.psn[1:] > requests.top[1:]
    return np.flatnonzero(~goes_on & ~skips) + 1


def _reported(seen: Seen, at: int) -> tuple[int, ...]:
    """The response before it."""
    before = int(np.searchsorted(seen.answers.place, seen.requests.place[at])) - 1
    return (int(seen.answers.number[before]),) if before >= 0 else ()


def _knew(seen: Seen, at: int) -> bool:
    """Whether the response arrived so long ago that the requester must have processed it."""
    answers, requests = seen.answers, seen.requests
    psn, now = int(requests.psn[at]), int(requests.time_ns[at])
    beyond = np.flatnonzero((answers.through > psn) & ~answers.lost)
    reported = beyond[answers.place[beyond] < requests.place[at]]
    return len(reported) > 0 and now - int(answers.time_ns[reported[0]]) > _SLACK_NS


@RULES.rule(
    "rc.retry-limit",
    "without progress a request is sent again as often as the retry count, and no more",
    "IBA 9.9.2.4.1",
    of_one_life=True,
)
def check_retries(case: Case) -> None:
    seen, tally = case.near_requester, case.tally["retry-limit"]
    requests, answers = seen.requests, seen.answers
    agreed = case.connection.agreed.retry_count
    limit = case.evidence.options.retry_count if agreed is None else agreed
    jumps = _jumps(requests)
    back = jumps[requests.psn[jumps] < requests.top[jumps]]
    if not len(back):
        return
    refusals = answers.place[answers.is_rnr]
    refused = np.searchsorted(refusals, requests.place[back])
    psn = requests.psn[back]
    fresh = np.ones(len(back), bool)  # another PSN, or an RNR NAK, which has a count of its own
    fresh[1:] = (psn[1:] != psn[:-1]) | (refused[1:] != refused[:-1])
    starts = np.flatnonzero(fresh)
    counts = np.diff(np.append(starts, len(back)))
    tally.passed(int(np.count_nonzero(counts <= limit)))
    for run in np.flatnonzero(counts > limit).tolist():
        sent = back[starts[run] : starts[run] + counts[run]]
        tally.failed(
            requests.number[sent].tolist(),
            f"{named(int(psn[starts[run]]))} sent again {counts[run]} times; the retry count is "
            f"{limit}",
        )


@RULES.rule(
    "rc.rnr-wait",
    "what was refused by an RNR NAK is not sent again before its timer has elapsed",
    "IBA 9.7.5.2.8, 9.9.2.4.2",
    is_proven=True,
    by_time=True,
)
def check_rnr(case: Case) -> None:
    seen, tally = case.near_requester, case.tally["rnr-wait"]
    requests, answers = seen.requests, seen.answers
    for at in np.flatnonzero(answers.is_rnr).tolist():
        wait_ns = RNR_NS[int(answers.syndrome[at]) & 31]
        again = _refused_again(seen, at)
        if again is None:
            continue
        waited_ns = int(requests.time_ns[again] - answers.time_ns[at])
        if waited_ns >= wait_ns:
            tally.passed()
        else:
            tally.failed(
                (answers.number[at], requests.number[again]),
                f"sent again after {waited_ns / 1e3:,.1f} us; the RNR timer is "
                f"{wait_ns / 1e3:,.0f} us",
            )


def _refused_again(seen: Seen, nak: int) -> int | None:
    """The request that was refused, sent again; where it is not seen, any of its message or later.

    What was under way already when the NAK passed here is left out: at the requester, nothing is.
    """
    requests, answers = seen.requests, seen.answers
    psn, place = int(answers.psn[nak]), int(answers.place[nak])
    if not seen.at_requester:
        return requests.moments.next(psn, place)
    after = int(np.searchsorted(requests.place, place))
    return after if after < len(requests) and requests.psn[after] >= psn else None


@RULES.rule(
    "rc.credits",
    "no message that needs a receive begins beyond the credits, unless it is the only one "
    "outstanding",
    "IBA 9.7.7.2",
)
def check_credits(case: Case) -> None:
    seen, tally = case.near_requester, case.tally["credits"]
    requests, answers = seen.requests, seen.answers
    plain = ~answers.is_result & (answers.syndrome >> 5 == ACK) & ~answers.lost
    counted = np.flatnonzero(plain & (answers.syndrome & 31 != UNLIMITED))
    if not len(counted) or not len(requests):
        return
    limits = answers.msn[counted] + np.array(CREDITS)[answers.syndrome[counted] & 31]
    greatest = np.maximum.accumulate(limits)
    begins = _needs_receive(requests)
    sequence = Messages(seen)
    number = sequence.ended(requests.psn[begins]) + 1 + sequence.usual.get(0, 0)
    slack = 0 if seen.at_requester else _SLACK_NS
    since = int(answers.time_ns[counted[0]]) + slack
    known = np.searchsorted(answers.place[counted], requests.place[begins]) - 1
    oldest = _Acknowledged(seen).greatest(requests.place[begins])
    for at, which, limit, acknowledged in zip(
        begins.tolist(), number.tolist(), known.tolist(), oldest.tolist(), strict=True
    ):
        if limit < 0 or requests.time_ns[at] < since:
            continue
        alone = acknowledged >= requests.psn[at]
        if which <= greatest[limit] or alone:
            tally.passed()
        else:
            tally.failed(
                (answers.number[counted[limit]], requests.number[at]),
                f"message {which} begins at {named(int(requests.psn[at]))}; the credits end with "
                f"{greatest[limit]}",
            )


def _needs_receive(requests: Requests) -> Indices:
    """First transmissions of packets that begin a message which takes a receive."""
    send: Mask = requests.family == Family.SEND
    written = (requests.family == Family.WRITE) & IMMEDIATE[requests.opcode] & requests.begins
    return np.flatnonzero(requests.is_new & requests.begins & (send | written))
