# SPDX-License-Identifier: GPL-2.0-or-later
"""PSNs of requests that were not captured, and acknowledgements of them.

A PSN that is missing in a capture was skipped by the requester, lost before the capture, or missed
by it. If the responder never acknowledged it, it may have been lost, unless the capture was taken
where the requester is. If it did, then the capture missed it, unless the responder's MSN shows that
no message was there: then the requester skipped it, and the responder let it.
"""

from __future__ import annotations

import numpy as np

from softroce_lab.check.rc.case import Case, named, ranged
from softroce_lab.check.rc.msn import Messages
from softroce_lab.check.rc.packets import Requests
from softroce_lab.check.verdict import Rule, Tally

_BEFORE = "the capture may begin behind it, and has what was sent again"
OVERLAPS = "overlaps"  # what two packets prove of CONTINUITY, whatever others were missed
CONTINUITY = Rule(
    "rc.psn-continuity",
    "requests have successive PSNs, a READ as many as its response has packets; none is skipped "
    "or given twice",
    "IBA 9.7.2, 9.7.3.1",
)
UNSEEN = Rule(
    "integrity.unseen",
    "the capture has every request that was acknowledged",
    "docs/checks.md, integrity",
)
SENT = Rule(
    "rc.ack-of-sent",
    "nothing is acknowledged before it was sent",
    "IBA 9.7.6.1, ghost acknowledgements",
)
IN_ORDER = Rule(
    "rc.in-order",
    "only what arrives whole, and in the order of PSNs, is accepted and acknowledged",
    "IBA 9.7.4.1, PSN; 7.8.1",
)


def check_continuity(case: Case, unseen: Tally) -> None:
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
    _check_overlaps(case, requests, case.tally[OVERLAPS])
    _check_holes(case, tally, unseen)


def _skipped(requests: Requests, at: int, tally: Tally) -> None:
    missing = ranged(int(requests.top[at]), int(requests.psn[at]))
    tally.failed([requests.number[at]], f"{missing} skipped before this packet left")


def _check_overlaps(case: Case, requests: Requests, tally: Tally) -> None:
    """PSNs of a READ's response that another request uses, too: both requests are there."""
    once = requests.once
    one, other = once[:-1], once[1:]
    overlaps = np.flatnonzero(requests.psn[other] < requests.end[one])
    if not case.knows_path_mtu:
        tally.doubts("how many PSNs a READ takes, no packet tells (--path-mtu)", len(overlaps))
        return
    for at in overlaps.tolist():
        tally.failed(
            (requests.number[one[at]], requests.number[other[at]]),
            f"{named(int(requests.psn[other[at]]))} is one of the READ's, and of another request",
        )


def _check_holes(case: Case, tally: Tally, unseen: Tally) -> None:
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
            unseen.doubts(_BEFORE)
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


def check_answers(case: Case, unseen: Tally) -> None:
    """Responses that acknowledge more than the responder can have received."""
    seen, walk = case.near_responder, case.walk
    requests, answers = seen.requests, seen.answers
    if not len(requests):
        return
    early = answers.place > requests.place[0]
    surprises = {each.answer: each for each in walk.ahead}
    sent, in_order = case.tally["ack-of-sent"], case.tally["in-order"]
    fine = int(np.count_nonzero(early)) - len(surprises)
    sent.passed(fine)
    in_order.passed(fine)
    tops = np.maximum.accumulate(requests.end)
    for surprise in walk.ahead:
        at, through = surprise.answer, int(answers.through[surprise.answer])
        before = int(np.searchsorted(requests.place, answers.place[at])) - 1
        if case.asked_before[at]:
            unseen.doubts(_BEFORE)
        elif answers.is_result[at] and through > tops[before]:
            text = f"the request of {named(through - 1)} is not in the capture before its result"
            unseen.failed([answers.number[at]], text)
        elif through > tops[before]:
            _beyond(requests, answers.number[at], int(tops[before]), through, before, sent, unseen)
        else:
            _out_of_order(case, int(answers.number[at]), surprise.expected, before)


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
