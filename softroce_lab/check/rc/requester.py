# SPDX-License-Identifier: GPL-2.0-or-later
"""What a requester does about losses and refusals: where it resumes, how often, and when."""

from __future__ import annotations

import numpy as np

from softroce_lab.check.evidence import Indices, Mask
from softroce_lab.check.opcodes import ACK, CREDITS, IMMEDIATE, RNR_NS, UNLIMITED, Family
from softroce_lab.check.rc.case import Case, named
from softroce_lab.check.rc.msn import Messages
from softroce_lab.check.rc.packets import Answers, Requests, Seen
from softroce_lab.check.verdict import Rules

RULES = Rules()
_LOST_BEFORE = "the packets before may have been lost before the capture (--at)"
_LOST_BEHIND = "an acknowledgement may have been lost behind the capture (--at)"
# Most time from receipt of a response to the reaction, where the capture does not show it.
_SLACK_NS = 100_000_000


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
        """At these places in time."""
        return self._held_up(self._last(self._greatest, place), place)

    def least(self, place: Indices) -> Indices:
        """At these places in time."""
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
    """Wherever requests do not go on where they were."""
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
        elif psn > high:
            _too_far(case, at, high)
        elif seen.at_requester and _knew(seen, at):
            _too_early(case, at, low)
        else:
            tally.doubts(_LOST_BEHIND)


def _jumps(requests: Requests) -> Indices:
    """Requests that neither follow the one before them nor leave something out for good."""
    goes_on = requests.psn[1:] == requests.end[:-1]
    skips = requests.psn[1:] > requests.top[1:]
    return np.flatnonzero(~goes_on & ~skips) + 1


def _too_far(case: Case, at: int, oldest: int) -> None:
    seen, tally = case.near_requester, case.tally["go-back-n"]
    if not seen.at_requester:
        tally.doubts(_LOST_BEFORE)
        return
    tally.failed(
        (*_reported(seen, at), seen.requests.number[at]),
        f"sent again from {named(int(seen.requests.psn[at]))}, where {named(oldest)} is the oldest "
        "not acknowledged",
    )


def _too_early(case: Case, at: int, oldest: int) -> None:
    seen = case.near_requester
    case.tally["go-back-n"].failed(
        (*_reported(seen, at), seen.requests.number[at]),
        f"sent again from {named(int(seen.requests.psn[at]))}, though all before {named(oldest)} "
        "was acknowledged",
    )


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
    """How often requests start from the same PSN again."""
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
    """Each RNR NAK, and the next packet of its PSN."""
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
    """Messages that begin while credits are counted."""
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
