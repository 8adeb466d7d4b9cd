# SPDX-License-Identifier: GPL-2.0-or-later
"""What responses carry: MSNs, the results of READs and atomics, and no reserved values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from softroce_lab.check.evidence import Evidence, Indices
from softroce_lab.check.opcodes import ACK, KINDS, NAK, NAK_CODES, Family
from softroce_lab.check.rc.case import MSNS, OVERTAKEN, Case, Messages, Place, named, ranged
from softroce_lab.check.rc.packets import Answers
from softroce_lab.check.verdict import Rules, Tally
from softroce_lab.faults.opcodes import opcode_name
from softroce_lab.telemetry.packets import Has

RULES = Rules()
_MOST_READS = 1024  # outstanding, of which the response may belong to any
ONE_PKEY = ("all packets of one direction carry the same P_Key", "IBA 9.2, 10.9")


@RULES.rule(
    "rc.msn-monotonic",
    "the MSN of a responder never goes back",
    "IBA 9.7.7.1, C9-148",
    is_proven=True,
    of_one_life=True,
)
def check_msn_order(case: Case) -> None:
    answers, tally = case.near_responder.answers, case.tally["msn-monotonic"]
    reported = np.flatnonzero(answers.has_aeth)
    if len(reported) < 2:
        return
    steps = (np.diff(answers.msn[reported]) + MSNS // 2) % MSNS - MSNS // 2
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
def check_msns(case: Case) -> None:
    answers, tally = case.near_responder.answers, case.tally["msn-right"]
    if not len(case.near_responder.requests):
        return
    messages = Messages(case.near_responder)
    _check_msns_of_results(case, messages)
    usual = np.array([messages.usual[part] for part in messages.part.tolist()], np.int64)
    wrong = np.flatnonzero((messages.excess - usual) % MSNS > messages.spare)
    tally.passed(len(usual) - len(wrong))
    for at in wrong.tolist():
        due = int(messages.msn[at] - messages.excess[at] + usual[at]) % MSNS
        tally.failed(
            [answers.number[messages.reported[at]]],
            f"MSN {messages.msn[at]} at {named(int(messages.through[at]) - 1)}, where {due} is due",
        )


def _check_msns_of_results(case: Case, messages: Messages) -> None:
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
    more = (answers.msn[results] - messages.ended(own) - usual) % MSNS
    wrong = known & (more > messages.ended(top) - messages.ended(own))
    tally.passed(int(np.count_nonzero(known & ~wrong)))
    for which in np.flatnonzero(wrong).tolist():
        at, due = int(results[which]), int(messages.ended(own)[which] + usual[which]) % MSNS
        text = f"MSN {answers.msn[at]} in a result of {named(int(answers.psn[at]))}, {due} is due"
        tally.failed([answers.number[at]], text)


@dataclass
class _Response:
    """A response under way: what its next packet is to be."""

    psn: int
    left: int
    begun: bool
    repeated: bool


@RULES.rule(
    "rc.read-response",
    "a READ is answered by First, Middle and Last, or Only, of its PSNs in order, as long as the "
    "path MTU and as what was asked for",
    "IBA 9.7.5.1, 9.7.6.1.4",
)
def check_read_responses(case: Case) -> None:
    """READ responses as they come, each from its request on."""
    answers = case.near_responder.answers
    responses = np.flatnonzero(answers.family == Family.READ_RESPONSE)
    if len(responses) and len(case.near_responder.requests):
        _Reader(case, responses).check()


class _Reader:
    def __init__(self, case: Case, responses: Indices) -> None:
        self.case, self.responses = case, responses
        self.requests, self.answers = case.near_responder.requests, case.near_responder.answers
        self.mtu = case.near_responder.path_mtu
        self.tally = case.tally["read-response"]
        self.reads = np.flatnonzero(self.requests.family == Family.READ)
        self.under_way: _Response | None = None

    def check(self) -> None:
        """Each response, compared with the expected one."""
        answers, requests = self.answers, self.requests
        arrivals = np.searchsorted(
            requests.place[self.reads], answers.place[self.responses]
        ).tolist()
        columns = zip(
            self.responses.tolist(),
            arrivals,
            answers.psn[self.responses].tolist(),
            answers.payload_bytes[self.responses].tolist(),
            answers.opcode[self.responses].tolist(),
            strict=True,
        )
        for at, reads, psn, size, opcode in columns:
            if self.under_way is None or self.under_way.psn != psn:
                self._begin(at, reads, psn)
            if self.under_way is not None:
                self._take(self.under_way, at, size, opcode - 0x0D)

    def _begin(self, at: int, reads: int, psn: int) -> None:
        """The latest READ of this PSN: that of the packet, or one that it is in the middle of."""
        requests = self.requests
        broken, self.under_way = self.under_way, None
        for read in self.reads[max(reads - _MOST_READS, 0) : reads][::-1].tolist():
            into = psn - int(requests.psn[read])
            if not 0 <= into < requests.end[read] - requests.psn[read]:
                continue
            left = int(requests.dma_length[read]) - into * self.mtu
            # The first READ of the capture may be the rest of one before it.
            repeated = read == self.reads[0] or self.case.walk.place[read] != Place.EXPECTED
            self.under_way = _Response(psn, left, into > 0, repeated)
            if into:
                self._lacks(at, read, psn, broken)
            return
        self.tally.doubts("a READ response whose request was not seen")

    def _lacks(self, at: int, read: int, psn: int, broken: _Response | None) -> None:
        begin = int(self.requests.psn[read])
        if broken is not None and begin < broken.psn < psn:
            begin = broken.psn
        # The requester got them another time, or never had what it waited for.
        other_time = self._was_stated(begin) or self._asked_again(at, begin)
        if not self.case.near_responder.at_responder and other_time:
            self.tally.doubts("responses may have been lost before the capture (--at)")
            return
        self.tally.failed(
            (self.requests.number[read], self.answers.number[at]),
            f"{named(psn)} follows where {named(begin)} is due",
        )

    def _was_stated(self, psn: int) -> bool:
        """Whether a PSN had a response at any time."""
        return bool(np.any(self.answers.psn[self.responses] == psn))

    def _asked_again(self, at: int, psn: int) -> bool:
        """Whether the requester, too, lacked it."""
        requests = self.requests
        later = self.reads[requests.place[self.reads] > self.answers.place[at]]
        return bool(np.any((requests.psn[later] <= psn) & (psn < requests.end[later])))

    def _take(self, due: _Response, at: int, size: int, place: int) -> None:
        ends = due.left <= self.mtu
        wanted = (3 if ends else 0) if not due.begun else (2 if ends else 1)
        # Requested again from the middle on, Linux continues with a Middle.
        goes_on = due.repeated and not due.begun and place == (2 if ends else 1)
        if (place != wanted and not goes_on) or size != max(min(due.left, self.mtu), 0):
            self._wrong(at, size, due, wanted)
            self.under_way = None
            return
        if goes_on:
            self.tally.notes_that(
                "a READ asked for again is answered from the middle on by a Middle or Last: as "
                "Linux does"
            )
        self.tally.passed()
        due.psn, due.left, due.begun = due.psn + 1, due.left - self.mtu, True
        if ends:
            self.under_way = None

    def _wrong(self, at: int, size: int, due: _Response, wanted: int) -> None:
        opcode = int(self.answers.opcode[at])
        cut = size != max(min(due.left, self.mtu), 0) and self.case.knows_path_mtu
        good = self.case.evidence.packets["has"][self.answers.rows[at]] & Has.ICRC_GOOD
        (self.tally.proven if cut and good else self.tally).failed(
            [self.answers.number[at]],
            f"{opcode_name(opcode)} of {size} bytes at {named(due.psn)}, where "
            f"{opcode_name(0x0D + wanted)} of {max(min(due.left, self.mtu), 0)} is due",
        )


# ---------------------------------------------------------------- whether they are there


@RULES.rule(
    "rc.results-complete",
    "every READ and every atomic that was acknowledged has all of its response",
    "IBA 9.7.5.1",
)
def check_complete(case: Case) -> None:
    """PSNs of results that were never seen, though later requests were acknowledged."""
    requests, answers = case.near_responder.requests, case.near_responder.answers
    tally = case.tally["results-complete"]
    once = requests.once
    wanted = once[np.isin(requests.family[once], (Family.READ, Family.ATOMIC))]
    came = np.unique(answers.psn[answers.is_result])
    before_fatal = min(answers.psn[answers.is_fatal].tolist(), default=1 << 62)
    for at in wanted.tolist():
        begin, end = int(requests.psn[at]), int(requests.end[at])
        there = np.searchsorted(came, (begin, end))
        missing = end - begin - int(there[1] - there[0])
        if missing == 0:
            tally.passed()
        elif end >= case.acknowledged or begin >= before_fatal:
            tally.doubts("the capture or the connection ends before the response does")
        else:
            first, last = _missing_ends(begin, end, came[there[0] : there[1]])
            tally.failed(
                [requests.number[at]],
                f"{missing} of {end - begin} responses are missing: {ranged(first, last + 1)}",
            )


def _missing_ends(begin: int, end: int, came: Indices) -> tuple[int, int]:
    """The first and the last PSN of [begin, end) that is not among `came`, which is ascending.

    Without a list of all of them: a READ may request millions.
    """
    steps = np.arange(len(came))
    from_begin = np.flatnonzero(came != begin + steps)
    from_end = np.flatnonzero(came[::-1] != end - 1 - steps)
    first = begin + int(from_begin[0] if len(from_begin) else len(came))
    last = end - 1 - int(from_end[0] if len(from_end) else len(came))
    return first, last


@RULES.rule(
    "rc.result-kind",
    "READs are answered by READ responses, atomics by atomic acknowledgements, nothing else is",
    "IBA 9.7.5.1",
)
def check_kinds(case: Case) -> None:
    requests, answers = case.near_responder.requests, case.near_responder.answers
    tally = case.tally["result-kind"]
    results = np.flatnonzero(answers.is_result)
    if not len(requests) or not len(results):
        return
    once, of = requests.of_psn(answers.psn[results])
    known = of >= 0
    family = requests.family[once[np.maximum(of, 0)]]
    is_read = answers.family[results] == Family.READ_RESPONSE
    fits = np.where(is_read, family == Family.READ, family == Family.ATOMIC)
    tally.passed(int(np.count_nonzero(known & fits)))
    for at in np.flatnonzero(known & ~fits).tolist():
        asked, stated = once[of[at]], results[at]
        tally.failed(
            (requests.number[asked], answers.number[stated]),
            f"{opcode_name(int(answers.opcode[stated]))} to a "
            f"{opcode_name(int(requests.opcode[asked]))} of {named(int(answers.psn[stated]))}",
        )


# ---------------------------------------------------------------- atomics


@RULES.rule(
    "rc.atomic-once",
    "an atomic that is asked for again is answered with the same value",
    "IBA 9.7.5.1.3, C9-106",
    is_proven=True,
)
def check_atomics(case: Case) -> None:
    """Atomic acknowledgements of one PSN, compared with each other."""
    answers, tally = case.near_responder.answers, case.tally["atomic-once"]
    values = case.evidence.packets["original"]
    atomics = np.flatnonzero(answers.family == Family.ATOMIC_RESPONSE)
    order = atomics[np.lexsort((answers.place[atomics], answers.psn[atomics]))]
    same = np.flatnonzero(answers.psn[order][1:] == answers.psn[order][:-1])
    tally.passed(len(order) - len(same))
    _compare(answers, values, order[same], order[same + 1], tally)


def _compare(answers: Answers, values: Indices, one: Indices, other: Indices, tally: Tally) -> None:
    for first, again in zip(one.tolist(), other.tolist(), strict=True):
        before, now = (int(values[answers.rows[each]]) for each in (first, again))
        if before == now:
            tally.passed()
        else:
            tally.failed(
                (answers.number[first], answers.number[again]),
                f"{named(int(answers.psn[again]))} answered with {now:#x}, before with {before:#x}",
            )


@RULES.rule(
    "rc.syndrome",
    "an AETH carries a defined syndrome and NAK code, that of a result an ACK",
    "IBA 9.7.5.2.1",
    is_proven=True,
)
def check_syndromes(case: Case) -> None:
    """Every AETH: the kind in the upper three bits, the code of a NAK in the lower five."""
    answers, tally = case.near_responder.answers, case.tally["syndrome"]
    reported = np.flatnonzero(answers.has_aeth)
    kind, code = answers.syndrome[reported] >> 5, answers.syndrome[reported] & 31
    reserved = ~np.isin(kind, KINDS) | ((kind == NAK) & (code >= len(NAK_CODES)))
    wrong = reserved | (answers.is_result[reported] & (kind != ACK))
    tally.passed(int(np.count_nonzero(~wrong)))
    for at in reported[wrong].tolist():
        syndrome, psn = int(answers.syndrome[at]), int(answers.psn[at])
        what = "a result" if answers.is_result[at] else "an acknowledgement"
        tally.failed([answers.number[at]], f"syndrome {syndrome:#04x} in {what} of {named(psn)}")


@RULES.rule("rc.pkey", *ONE_PKEY, is_proven=True)
def check_pkeys(case: Case) -> None:
    check_one_pkey(case.evidence, case.near_requester.requests.rows, case.tally["pkey"])
    check_one_pkey(case.evidence, case.near_responder.answers.rows, case.tally["pkey"])


def check_one_pkey(evidence: Evidence, rows: Indices, tally: Tally) -> None:
    """Rows of one direction: the P_Key of most of them is that of all."""
    if not len(rows):
        return
    pkeys = evidence.packets["pkey"][rows]
    values, counts = np.unique(pkeys, return_counts=True)
    usual = values[counts.argmax()]
    odd = rows[pkeys != usual]
    tally.passed(len(rows) - len(odd))
    proven = evidence.packets["has"][odd] & Has.ICRC_GOOD != 0
    tally.doubts("bits may have flipped: the ICRC is not known", int(np.count_nonzero(~proven)))
    for row in odd[proven].tolist():
        packet = evidence.packets[row]
        text = f"P_Key {packet['pkey']:#06x} in PSN {packet['psn']}, {usual:#06x} in the others"
        tally.failed([packet["number"]], text)
