# SPDX-License-Identifier: GPL-2.0-or-later
"""MSNs: how many messages a responder reports as completed (IBA 9.7.7.1)."""

from __future__ import annotations

import functools

import numpy as np

from softroce_lab.check.evidence import Indices, Mask
from softroce_lab.check.rc.case import OVERTAKEN, Case, named
from softroce_lab.check.rc.packets import Seen
from softroce_lab.check.verdict import Rules

RULES = Rules()
_MSNS = 1 << 24
_CANDIDATES = 8  # of which one explains most MSNs of a part


class Messages:
    """Messages by the PSNs at which they end, and the MSNs that were reported for them.

    MSNs are compared with the number of messages that ended, up to what is the same for all of a
    part of the capture without holes: where a message is missing, they differ by one more. What
    acknowledges a duplicate may count READs and atomics directly behind it besides: they are
    completed (C9-148), and acknowledged by their results alone.
    """

    def __init__(self, seen: Seen) -> None:
        requests, answers = seen.requests, seen.answers
        once = requests.once
        self._ends = np.sort(requests.end[once][requests.ends[once]])
        self._holes = np.array([end for _, end in requests.holes], np.int64)
        self.reported = np.flatnonzero(~answers.is_result & (answers.psn >= _first(requests.psn)))
        self.through = answers.through[self.reported]
        self.msn = answers.msn[self.reported]
        behind = requests.results_from(self.through, answers.place[self.reported])
        self.spare = np.where(answers.is_ack[self.reported], behind, 0)

    def ended(self, through: Indices) -> Indices:
        """How many messages end before this PSN."""
        return np.searchsorted(self._ends, through, "right")

    @functools.cached_property
    def excess(self) -> Indices:
        """Of each report: by how much its MSN exceeds the counted messages."""
        return (self.msn - self.ended(self.through)) % _MSNS

    @functools.cached_property
    def part(self) -> Indices:
        """Which part of the capture, between holes, it is about."""
        return self.part_of(self.through)

    def part_of(self, psn: Indices) -> Indices:
        """Which part of the capture, between holes, a PSN lies behind."""
        return np.searchsorted(self._holes, psn, "right")

    @functools.cached_property
    def usual(self) -> dict[int, int]:
        """For each part by how much most MSNs exceed the count."""
        return {part: self._usual(self.part == part) for part in np.unique(self.part).tolist()}

    def _usual(self, mine: Mask) -> int:
        """What explains most; of several such, the most frequent without those behind a gap."""
        excess, spare = self.excess[mine], self.spare[mine]
        stated = np.concatenate((excess, (excess - spare)[spare > 0] % _MSNS))
        values, counts = np.unique(stated, return_counts=True)
        likely = values[np.argsort(-counts, kind="stable")[:_CANDIDATES]]
        fits = [((excess - value) % _MSNS <= spare).sum() for value in likely]
        exact = [(excess == value).sum() for value in likely]
        best = max(range(len(likely)), key=lambda n: (fits[n], exact[n]))
        return int(likely[best])

    def has_none_between(self, begin: int, end: int) -> bool:
        """Whether the MSNs on both sides of a hole prove that no message ended in it."""
        part = int(np.searchsorted(self._holes, begin, "right"))
        before, behind = self.usual.get(part), self.usual.get(part + 1)
        ended = int(np.searchsorted(self._ends, begin))
        in_a_message = ended == len(self._ends) or self._ends[ended] != begin
        return before is not None and before == behind and not in_a_message and end > begin


def _first(psn: Indices) -> int:
    return int(psn[0]) if len(psn) else 0


@RULES.rule(
    "rc.msn-monotonic",
    "the MSN of a responder never goes back",
    "IBA 9.7.7.1, C9-148",
    is_proven=True,
    of_one_life=True,
)
def check_order(case: Case) -> None:
    """Every MSN with the one before it."""
    answers, tally = case.near_responder.answers, case.tally["msn-monotonic"]
    reported = np.flatnonzero(answers.has_aeth)
    if len(reported) < 2:
        return
    steps = (np.diff(answers.msn[reported]) + _MSNS // 2) % _MSNS - _MSNS // 2
    back = np.flatnonzero(steps < 0)
    tally.passed(len(steps) - len(back))
    if len(back) and case.may_overtake_before:
        tally.doubts(OVERTAKEN, len(back))
        return
    for at in back.tolist():
        one, other = reported[at], reported[at + 1]
        tally.failed(
            (answers.number[one], answers.number[other]),
            f"MSN {answers.msn[other]} after {answers.msn[one]}",
        )


@RULES.rule(
    "rc.msn-right",
    "the MSN counts the messages that were completed up to the acknowledged PSN",
    "IBA 9.7.7.1, C9-148",
    of_one_life=True,
)
def check_count(case: Case) -> None:
    """Every response with an MSN."""
    answers, tally = case.near_responder.answers, case.tally["msn-right"]
    if not len(case.near_responder.requests):
        return
    messages = Messages(case.near_responder)
    _check_results(case, messages)
    usual = np.array([messages.usual[part] for part in messages.part.tolist()], np.int64)
    wrong = np.flatnonzero((messages.excess - usual) % _MSNS > messages.spare)
    tally.passed(len(usual) - len(wrong))
    for at in wrong.tolist():
        due = int(messages.msn[at] - messages.excess[at] + usual[at]) % _MSNS
        tally.failed(
            [answers.number[messages.reported[at]]],
            f"MSN {messages.msn[at]} at {named(int(messages.through[at]) - 1)}, where {due} is due",
        )


def _check_results(case: Case, messages: Messages) -> None:
    """Results count their own request, and no more than had come (C9-148).

    A result that is sent again also counts messages that came since.
    """
    requests, answers = case.near_responder.requests, case.near_responder.answers
    tally = case.tally["msn-right"]
    results = np.flatnonzero(answers.is_result & answers.has_aeth)
    once, of = requests.of_psn(answers.psn[results])
    own = requests.end[once[np.maximum(of, 0)]]
    before = np.searchsorted(requests.place, answers.place[results])
    top = np.maximum(np.maximum.accumulate(requests.end)[np.maximum(before - 1, 0)], own)
    part = messages.part_of(own)
    usual = np.array([messages.usual.get(each, -1) for each in part.tolist()], np.int64)
    known = (of >= 0) & (before > 0) & (usual >= 0) & (part == messages.part_of(top))
    tally.doubts("what results count, no acknowledgement tells", int(np.count_nonzero(~known)))
    more = (answers.msn[results] - messages.ended(own) - usual) % _MSNS
    wrong = known & (more > messages.ended(top) - messages.ended(own))
    tally.passed(int(np.count_nonzero(known & ~wrong)))
    for which in np.flatnonzero(wrong).tolist():
        at, due = int(results[which]), int(messages.ended(own)[which] + usual[which]) % _MSNS
        text = f"MSN {answers.msn[at]} in a result of {named(int(answers.psn[at]))}, {due} is due"
        tally.failed([answers.number[at]], text)
