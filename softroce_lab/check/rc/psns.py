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
from softroce_lab.check.verdict import Rules, Tally

BEGINS_BEHIND = "the capture may begin behind it, and has what was sent again"
RULES = Rules()


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
