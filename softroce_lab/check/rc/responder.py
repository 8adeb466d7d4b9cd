# SPDX-License-Identifier: GPL-2.0-or-later
"""Responses of a responder: NAKs, acknowledgements, and responses to duplicates."""

from __future__ import annotations

import numpy as np

from softroce_lab.check.evidence import Indices, Mask
from softroce_lab.check.opcodes import IMMEDIATE, NAK_CODES, Family
from softroce_lab.check.rc.case import (
    BEGINS_BEHIND,
    OVERTAKEN,
    Case,
    Place,
    named,
    next_of_psn,
    ranged,
)
from softroce_lab.check.rc.packets import Answers, Moments, Requests
from softroce_lab.check.verdict import Rules, Tally

RULES = Rules()
_LOST = "the request may have been lost behind the capture, or its answer before it (--at)"
_SOON_NS = 100_000_000  # a response may take as long
_PATIENCE_NS = 1_000_000_000  # or, at the end of a capture, as long


@RULES.rule(
    "rc.nak-once-per-gap", "a missing PSN is told of by one NAK, until it comes", "IBA 9.7.5.2.2"
)
@RULES.rule(
    "rc.nak-names-gap",
    "a NAK sequence error follows a packet that came too early, and names the PSN that is missing",
    "IBA 9.7.5.2.2",
)
def check_naks(case: Case) -> None:
    answers, walk = case.near_responder.answers, case.walk
    naks = np.flatnonzero(answers.is_sequence_nak)
    once = case.tally["nak-once-per-gap"]
    once.passed(len(naks) - len(walk.again))
    for first, again in walk.again:
        tally = once.proven if _never_refused(case, int(answers.psn[again])) else once
        tally.failed(
            (answers.number[first], answers.number[again]),
            f"a second NAK for {named(int(answers.psn[again]))}, which did not come meanwhile",
        )
    behind = set(walk.behind)
    greatest = np.maximum.accumulate(case.near_responder.requests.psn)
    if len(case.near_responder.requests):
        for nak in naks.tolist():
            _check_reason(case, nak, greatest, came=nak in behind)
    _note_refused(case, naks)


def _never_refused(case: Case, psn: int) -> bool:
    """Whether the request of this PSN needs no receive, so that no RNR NAK can refuse it.

    Linux names a refused PSN in a second NAK. Without a refusal the expected PSN never comes back
    to it: two NAKs of it prove a fault, whether or not it arrived meanwhile.
    """
    requests = case.near_responder.requests
    at = requests.moments.next(psn, 0)
    if at is None:
        return False
    begins_send = requests.family[at] == Family.SEND and requests.begins[at]
    return not (begins_send or IMMEDIATE[requests.opcode[at]])


@RULES.rule(
    "rc.nak-for-gap",
    "a request that comes too early is answered by a NAK sequence error",
    "IBA 9.7.5.2.2",
)
def check_gaps(case: Case) -> None:
    """From the first request behind a gap to the NAK that names it, or to what fills the gap."""
    answers, requests = case.near_responder.answers, case.near_responder.requests
    if not len(answers):
        return
    tally = case.tally["nak-for-gap"]
    asked = np.flatnonzero(answers.is_sequence_nak)
    naks = Moments(answers.psn[asked], answers.place[asked])
    for at, missing in case.walk.gaps:
        place = int(requests.place[at])
        filled, nak = requests.moments.next(missing, place), naks.next(missing, place)
        until = len(case.evidence.in_time) if filled is None else int(requests.place[filled])
        if nak is not None and answers.place[asked[nak]] < until:
            tally.passed()
        elif _otherwise(answers, missing, place, until):
            continue
        elif not case.is_at_responder or case.may_overtake_behind:
            tally.doubts("it may not have come to the responder, or its NAK not here (--at)")
        elif _time_ns(case, -1 if filled is None else until) - requests.time_ns[at] < _SOON_NS:
            tally.doubts("the gap was filled soon, or the capture ends")
        else:
            came = named(int(requests.psn[at]))
            shown = [requests.number[at]] + ([] if filled is None else [requests.number[filled]])
            tally.failed(shown, f"{came} came, and {named(missing)}, missing, is never asked for")


def _otherwise(answers: Answers, missing: int, place: int, until: int) -> bool:
    """Whether no NAK is due: the responder NAKs everything, or had what the capture misses."""
    refused = (answers.is_rnr & (answers.psn == missing) & (answers.place < until)).any()
    dead = (answers.is_fatal & (answers.place < until)).any()
    later = (answers.place > place) & (answers.place < until)
    return bool(refused or dead or (later & (answers.through > missing)).any())


def _note_refused(case: Case, naks: Indices) -> None:
    """NAKs of what an RNR NAK has refused, though it did not come again."""
    answers, requests = case.near_responder.answers, case.near_responder.requests
    refusals = np.flatnonzero(answers.is_rnr)
    refused = Moments(answers.psn[refusals], answers.place[refusals])
    for nak in naks.tolist():
        psn, place = int(answers.psn[nak]), int(answers.place[nak])
        refusal = refused.last(psn, place)
        if refusal is None:
            continue
        again = requests.moments.next(psn, int(answers.place[refusals[refusal]]))
        if again is None or requests.place[again] > place:
            text = "a NAK of what an RNR NAK had refused: Linux says so, IBA 9.7.5.2.8 does not"
            case.tally["nak-names-gap"].notes_that(text)


def _check_reason(case: Case, nak: int, greatest: Indices, *, came: bool) -> None:
    answers, tally = case.near_responder.answers, case.tally["nak-names-gap"]
    requests, psn = case.near_responder.requests, int(answers.psn[nak])
    before = int(np.searchsorted(requests.place, answers.place[nak]))
    expected = int(case.walk.expected[nak])
    covers = (requests.psn[:before] <= expected) & (expected < requests.end[:before])
    skips = expected < psn and not covers.any()
    arrived = requests.moments.last(psn, int(answers.place[nak])) if came else None
    if before == 0:
        tally.doubts("the capture begins with it")
    elif skips and case.near_responder.at_responder and not case.asked_before[nak]:
        numbers = requests.number[before - 1], answers.number[nak]
        tally.failed(numbers, f"NAK of {named(psn)}, and {named(expected)} had not come either")
    elif greatest[before - 1] <= psn:
        tally.failed([answers.number[nak]], f"NAK of {named(psn)}, and nothing beyond it came")
    elif arrived is None or requests.lost[arrived]:
        tally.passed()
    elif (
        case.near_responder.at_responder
        and answers.time_ns[nak] - requests.time_ns[arrived] > _SOON_NS
    ):
        numbers = requests.number[arrived], answers.number[nak]
        tally.failed(numbers, f"NAK of {named(psn)}, which had come")
    else:
        tally.doubts("NAKs of what had come here: lost behind the capture, or on its way")


@RULES.rule(
    "rc.ack-order",
    "what was acknowledged stays so: later acknowledgements and NAKs name no lower PSN",
    "IBA 9.7.5.1.2, 9.7.5.1.3",
    is_proven=True,
)
def check_order(case: Case) -> None:
    """Acknowledgements and NAKs, one after the other; results come in their own order.

    An acknowledgement of a duplicate may leave out READs and atomics behind the last SEND or WRITE
    (rxe_resp.c, `ack_psn`), for they are acknowledged by their results.
    """
    answers, tally = case.near_responder.answers, case.tally["ack-order"]
    plain = np.flatnonzero(~answers.is_result)
    through = answers.through[plain]
    least = case.near_responder.requests.before_results(through)
    back = np.flatnonzero(np.where(answers.is_ack[plain], _falls(least), _falls(through)))
    tally.passed(max(len(plain) - 1, 0) - len(back))
    seen = case.near_responder
    if seen.at_requester and not seen.at_responder:
        tally.doubts(
            "taken at the requester: the network between may have reordered them", len(back)
        )
        return
    if len(back) and case.may_overtake_before:
        tally.doubts(OVERTAKEN, len(back))
        return
    for at in back.tolist():
        before = plain[np.argmax(through[:at])]
        tally.failed(
            (answers.number[before], answers.number[plain[at]]),
            f"{_stated(answers, int(plain[at]))} after {_stated(answers, int(before))}",
        )


def _falls(values: Indices) -> Mask:
    """Which are less than any before."""
    below: Mask = values < np.maximum.accumulate(values)
    return below


def _stated(answers: Answers, at: int) -> str:
    kind = "ACK" if answers.is_ack[at] else "RNR NAK" if answers.is_rnr[at] else "NAK"
    return f"{kind} of {named(int(answers.psn[at]))}"


@RULES.rule(
    "rc.ack-of-sent",
    "nothing is acknowledged before it was sent",
    "IBA 9.7.6.1, ghost acknowledgements",
)
@RULES.rule(
    "rc.in-order",
    "only what arrives whole, and in the order of PSNs, is accepted and acknowledged",
    "IBA 9.7.4.1, PSN; 7.8.1",
)
def check_answers(case: Case) -> None:
    """Responses that acknowledge more than the responder can have received."""
    seen, walk, unseen = case.near_responder, case.walk, case.tally["unseen"]
    requests, answers = seen.requests, seen.answers
    if not len(requests):
        return
    early = answers.place > requests.place[0]
    sent, in_order = case.tally["ack-of-sent"], case.tally["in-order"]
    fine = int(np.count_nonzero(early)) - len(walk.ahead)
    sent.passed(fine)
    in_order.passed(fine)
    tops = np.maximum.accumulate(requests.end)
    for at, expected in walk.ahead:
        through = int(answers.through[at])
        before = int(np.searchsorted(requests.place, answers.place[at])) - 1
        if case.asked_before[at]:
            unseen.doubts(BEGINS_BEHIND)
        elif answers.is_result[at] and through > tops[before]:
            text = f"the request of {named(through - 1)} is not in the capture before its result"
            unseen.failed([answers.number[at]], text)
        elif through > tops[before]:
            _beyond(requests, answers.number[at], int(tops[before]), through, before, sent, unseen)
        else:
            _out_of_order(case, int(answers.number[at]), expected, before)


def _beyond(
    requests: Requests, number: int, top: int, through: int, before: int, sent: Tally, unseen: Tally
) -> None:
    later = np.flatnonzero((requests.psn >= top) & (requests.psn < through))
    later = later[later > before]
    if len(later):
        first = int(later[0])
        sent.failed(
            (number, requests.number[first]),
            f"{named(through - 1)} acknowledged before {named(int(requests.psn[first]))} was sent",
        )
    elif not np.any(requests.psn >= through):  # else it is a hole, and counted as that
        unseen.failed([number], f"{ranged(top, through)} acknowledged, and not in the capture")


def _out_of_order(case: Case, number: int, expected: int, before: int) -> None:
    requests, tally = case.near_responder.requests, case.tally["in-order"]
    came = np.flatnonzero(requests.psn[: before + 1] == expected)
    if len(came) == 0:
        tally.doubts("the capture missed a request that was acknowledged")
        return
    if not case.is_at_responder or case.may_overtake_behind:
        where = "" if case.is_at_responder else " (--at)"
        tally.doubts(f"requests may have overtaken each other behind the capture{where}")
        return
    tally.failed(
        (requests.number[came[-1]], number),
        f"{named(expected)} came too early only, and is acknowledged",
    )


@RULES.rule(
    "rc.duplicate-acknowledged",
    "a duplicate request is acknowledged again, or its result is sent again",
    "IBA 9.7.5.1.3, C9-105",
)
def check_duplicates(case: Case) -> None:
    """Each duplicate, till it comes once more or the capture ends.

    A duplicate that arrives before a response can be expected is not checked. A duplicate SEND or
    WRITE before an executed READ or atomic may be left to that result once (IBA 9.7.5.1.2): the
    requester retransmits the READ or atomic, too.
    """
    requests, answers = case.near_responder.requests, case.near_responder.answers
    if not len(answers):
        return
    duplicates = np.flatnonzero(case.walk.place == Place.DUPLICATE)
    again = next_of_psn(requests.psn, requests.place)[duplicates]
    results = np.flatnonzero(answers.is_result)
    stated_when = Moments(answers.psn[results], answers.place[results])
    fatal = answers.place[answers.is_fatal]
    new = np.flatnonzero(case.walk.place == Place.EXPECTED)
    is_result = np.isin(requests.family[new], (Family.READ, Family.ATOMIC))
    left: set[int] = set()  # PSNs whose duplicate was left to a result
    for at, until in zip(duplicates.tolist(), again.tolist(), strict=True):
        place, psn = int(requests.place[at]), int(requests.psn[at])
        soon = until >= 0 and _time_ns(case, until) - requests.time_ns[at] < _SOON_NS
        if soon or (len(fatal) and fatal[0] < place):
            continue
        if requests.family[at] in (Family.READ, Family.ATOMIC):
            result = stated_when.next(psn, place)
            answer = len(answers) if result is None else int(results[result])
        else:
            answer = int(np.searchsorted(answers.place, place))
        stated = answer < len(answers) and (until < 0 or answers.place[answer] < until)
        last = int(np.searchsorted(requests.place[new], place)) - 1
        plain = requests.family[at] not in (Family.READ, Family.ATOMIC)
        if not stated and plain and psn not in left and last >= 0 and is_result[last]:
            left.add(psn)
            continue
        _judge(case, at, stated=bool(stated), ended=until < 0)


def _judge(case: Case, at: int, *, stated: bool, ended: bool) -> None:
    requests, tally = case.near_responder.requests, case.tally["duplicate-acknowledged"]
    if stated:
        tally.passed()
    elif ended and _time_ns(case, -1) - requests.time_ns[at] < _PATIENCE_NS:
        tally.doubts("the capture ends")
    elif case.is_at_responder:
        tally.failed(
            [requests.number[at]], f"{named(int(requests.psn[at]))} came again, without an answer"
        )
    else:
        tally.doubts(_LOST)


def _time_ns(case: Case, place: int) -> int:
    evidence = case.evidence
    return int(evidence.times_ns(evidence.in_time[place]))


@RULES.rule(
    "rc.error-is-final",
    "after a NAK that ends the connection nothing more is acknowledged",
    "IBA 9.9.3",
    is_proven=True,
)
def check_final(case: Case) -> None:
    answers, tally = case.near_responder.answers, case.tally["error-is-final"]
    for fatal in np.flatnonzero(answers.is_fatal).tolist():
        following = np.arange(fatal + 1, len(answers))
        positive = (answers.is_ack | answers.is_result) & (answers.psn >= answers.psn[fatal])
        after = following[positive[following]]
        if len(after) == 0:
            tally.passed()
            continue
        code = int(answers.syndrome[fatal]) & 31
        name = NAK_CODES[code] if code < len(NAK_CODES) else f"code {code}"
        tally.failed(
            (answers.number[fatal], answers.number[after[0]]),
            f"NAK {name} of {named(int(answers.psn[fatal]))}, and then an acknowledgement of "
            f"{named(int(answers.psn[after[0]]))}",
        )
