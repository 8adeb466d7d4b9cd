# SPDX-License-Identifier: GPL-2.0-or-later
"""One reliable connection under check: its views, the input of the rules, and their findings."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from softroce_lab.check import fault_rules, opcodes
from softroce_lab.check.connections import PSNS, Connection
from softroce_lab.check.evidence import Evidence, Indices, Mask
from softroce_lab.check.opcodes import Family
from softroce_lab.check.rc.packets import Seen, has_several_places, seen
from softroce_lab.check.verdict import Tally

MSNS = 1 << 24
BEGINS_BEHIND = "the capture may begin behind it, and has what was sent again"
OVERTAKEN = "answers may have overtaken each other before the capture"
_CANDIDATES = 8  # of which one explains most MSNs of a part
_UNDER_WAY_NS = 100_000_000  # at most, between a request and its response
_RESULTS = (Family.READ, Family.ATOMIC)  # families of requests whose responses carry results


class Place(enum.IntEnum):
    """Where a request stands to the expected PSN when it arrives."""

    EXPECTED = 0
    DUPLICATE = 1
    EARLY = 2
    LOST = 3  # after the capture, as its own records show


class Walk:
    """A responder's expected PSN, followed through all packets in order of time (IBA 9.7.4.1).

    What the capture saw may have been lost before it reached the responder, and the capture may
    have missed what the responder got. So every response, which carries the expected PSN, corrects
    the walk, and what it had to correct is kept: the rules distinguish losses from faults by it.
    """

    def __init__(self, seen: Seen) -> None:
        requests, answers = seen.requests, seen.answers
        self.place = np.zeros(len(requests), np.uint8)  # Place of each request
        self.expected = np.zeros(len(answers), np.int64)  # PSN before each response
        # The first request behind each gap, and the PSN that is missing.
        self.gaps: list[tuple[int, int]] = []
        # Responses that acknowledge what did not come in order, and the PSN expected then.
        self.ahead: list[tuple[int, int]] = []
        self.behind: list[int] = []  # responses that request what did
        self.again: list[tuple[int, int]] = []  # NAKs for one gap: the first, and a further one
        self._requests, self._answers = requests, answers
        self._now: int | None = None  # the PSN that is expected
        self._in_gap = False
        self._nak = -1  # the response that reported the gap
        # A responder requested what had passed the capture. It was lost since; or it was on its way
        # when the NAK was sent, and then this is what the responder expects.
        self._otherwise = 0
        self._walk()

    def _walk(self) -> None:
        answers = self._answers
        bounds = np.searchsorted(self._requests.place, answers.place).tolist()
        through = answers.through.tolist()
        names_expected = (~answers.is_ack & ~answers.is_result).tolist()
        is_gap = answers.is_sequence_nak.tolist()
        begin = 0
        for answer, end in enumerate(bounds):
            if end > begin:
                self._handle_requests(begin, end)
                begin = end
            self._handle_response(answer, through[answer], names_expected[answer], is_gap[answer])
        self._handle_requests(begin, len(self._requests))

    def _handle_requests(self, begin: int, end: int) -> None:
        if begin == end:
            return
        requests, part = self._requests, slice(begin, end)
        expected = int(requests.psn[begin]) if self._now is None else self._now
        places = []
        rows = zip(
            requests.psn[part].tolist(),
            requests.end[part].tolist(),
            requests.lost[part].tolist(),
            strict=True,
        )
        for at, (psn, behind, lost) in enumerate(rows, begin):
            if psn == self._otherwise and not lost:
                self._otherwise = behind
            if lost:
                places.append(Place.LOST)
            elif psn == expected:
                expected = behind
                self._in_gap, self._nak = False, -1
                places.append(Place.EXPECTED)
            elif psn < expected:
                places.append(Place.DUPLICATE)
            else:
                if not self._in_gap:
                    self.gaps.append((at, expected))
                self._in_gap = True
                places.append(Place.EARLY)
        self.place[part] = places
        self._now = expected

    def _handle_response(
        self, answer: int, through: int, names_expected: bool, is_gap: bool
    ) -> None:
        expected = self._now
        self.expected[answer] = through if expected is None else expected
        if expected is None:
            return
        if through > expected:
            if through > self._otherwise:
                self.ahead.append((answer, expected))
        elif through < expected and names_expected and not self._answers.is_fatal[answer]:
            self.behind.append(answer)
            self._otherwise = max(self._otherwise, expected)
        if through > expected or (names_expected and through != expected):
            self._now, self._in_gap, self._nak = through, False, -1
        if is_gap:
            if self._nak >= 0:
                self.again.append((self._nak, answer))
            else:
                self._nak = answer


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
        first = int(requests.psn[0]) if len(requests) else 0
        self.reported = np.flatnonzero(~answers.is_result & (answers.psn >= first))
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
        return (self.msn - self.ended(self.through)) % MSNS

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
        stated = np.concatenate((excess, (excess - spare)[spare > 0] % MSNS))
        values, counts = np.unique(stated, return_counts=True)
        likely = values[np.argsort(-counts, kind="stable")[:_CANDIDATES]]
        fits = [((excess - value) % MSNS <= spare).sum() for value in likely]
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


@dataclasses.dataclass
class Case:
    """A connection with its views, made when a rule asks for them."""

    evidence: Evidence
    connection: Connection
    tally: Mapping[str, Tally]  # of all rules; their checks are called with the case alone

    @functools.cached_property
    def near_responder(self) -> Seen:
        """As near to the responder as the capture has it."""
        return seen(self.evidence, self.connection, near_requester=False)

    @functools.cached_property
    def near_requester(self) -> Seen:
        """As near to the requester; the same, where there is one place of capture."""
        if has_several_places(self.connection):
            return seen(self.evidence, self.connection, near_requester=True)
        return self.near_responder

    @functools.cached_property
    def walk(self) -> Walk:
        """The responder's expected PSN, as it was seen near it."""
        return Walk(self.near_responder)

    @functools.cached_property
    def acknowledged(self) -> int:
        """PSN behind all that was acknowledged; 0: nothing was."""
        through = self.near_responder.answers.through
        return int(through.max(initial=0))

    def broken_between(self, begin: int, end: int) -> list[int]:
        """Frame numbers of requests of these PSNs whose ICRC was wrong."""
        flow, evidence = self.connection.requests, self.evidence
        rows = evidence.broken
        if flow is None or not len(rows):
            return []
        packets = evidence.packets[rows]
        same = (packets["destination_qp"] == flow.qp) & (packets["opcode"] >> 5 == flow.service)
        same &= (packets["psn"].astype(np.int64) - begin) % PSNS < end - begin
        return [
            int(each["number"])
            for each in packets[same]
            if bytes(each["source"]) == flow.source
            and bytes(each["destination"]) == flow.destination
        ]

    @functools.cached_property
    def _begins_here(self) -> bool:
        """Whether the capture has the connection from its beginning, as far as packets show."""
        requests, answers = self.near_responder.requests, self.near_responder.answers
        once, reported = requests.once, np.flatnonzero(answers.has_aeth)
        if not len(once) or not len(reported):
            return True
        end = requests.end[once[requests.ends[once]]]
        missing = sum(end - begin for begin, end in requests.holes)
        most = np.count_nonzero(end <= answers.through[reported[0]]) + missing
        return bool(requests.begins[once[0]] and answers.msn[reported[0]] <= most)

    @functools.cached_property
    def asked_before(self) -> Mask:
        """Responses that may be to requests from before the capture, which may be retransmitted."""
        requests, answers = self.near_responder.requests, self.near_responder.answers
        if self._begins_here or not len(requests):
            return np.zeros(len(answers), np.bool_)
        soon: Mask = answers.time_ns - requests.time_ns[0] <= _UNDER_WAY_NS
        return soon

    @functools.cached_property
    def knows_path_mtu(self) -> bool:
        """Whether it is more than a guess by packets that need not be full."""
        seen = self.near_requester
        stated = self.evidence.options.path_mtu or self.connection.agreed.path_mtu
        there = np.concatenate((seen.requests.opcode, seen.answers.opcode))
        return stated is not None or not np.all(opcodes.ENDS[there])

    @functools.cached_property
    def lost_on_the_way(self) -> int:
        """Requests that provably did not get from the capture to the responder, or whose responses
        did not get from there to the capture.
        """
        return len(self.walk.behind) + self._unanswered()

    @property
    def is_at_responder(self) -> bool:
        """Known, or not contradicted."""
        seen = self.near_responder
        return seen.at_responder or (not seen.at_requester and self.lost_on_the_way == 0)

    @functools.cached_property
    def may_overtake_behind(self) -> bool:
        """Whether requests may overtake each other between the capture and the responder."""
        flow = self.connection.requests
        if flow is None or not fault_rules.are_known(self.evidence):
            return self._overtook
        return fault_rules.reorder(self.evidence, flow.arrivals)

    @functools.cached_property
    def may_overtake_before(self) -> bool:
        """Whether responses may have, between the responder and the capture."""
        if self.near_responder.at_responder:
            return False
        if not fault_rules.are_known(self.evidence):
            return self._overtook
        return self.evidence.rules_of_the_run(fault_rules.REORDER) or fault_rules.spread(
            self.evidence
        )

    @functools.cached_property
    def _overtook(self) -> bool:
        """Whether requests did so between two places of the capture."""
        flow = self.connection.requests
        if flow is None or not flow.several_places:
            return False
        sent, arrivals = (self.evidence.packets["psn"][rows] for rows in (flow.sent, flow.arrivals))
        psns = [np.unique(each, return_counts=True) for each in (sent, arrivals)]
        # Of a PSN of which none was lost, the first one here is the first one there.
        both, one, other = np.intersect1d(psns[0][0], psns[1][0], return_indices=True)
        whole = both[psns[0][1][one] == psns[1][1][other]]
        left, came = (_by_psn(each, whole) for each in (sent, arrivals))
        return bool(np.any(np.diff(came[np.argsort(left)]) < 0))

    def _unanswered(self) -> int:
        """Requests for an acknowledgement that arrived in order, had no response, came again."""
        requests, answers = self.near_responder.requests, self.near_responder.answers
        wants = requests.asks | np.isin(requests.family, _RESULTS)
        asked = np.flatnonzero(wants & (self.walk.place == Place.EXPECTED))
        again = next_of_psn(requests.psn, requests.place)[asked]
        # The greatest PSN acknowledged before it came again; acknowledged PSNs never decrease.
        greatest = np.maximum.accumulate(np.concatenate(([0], answers.through)))
        stated = greatest[np.searchsorted(answers.place, np.maximum(again, 0))]
        silent = (again >= 0) & (stated <= requests.psn[asked])
        # A NAK is a response, too.
        refused = np.isin(requests.psn[asked], answers.psn[answers.is_rnr])
        return int(np.count_nonzero(silent & ~refused))


def _by_psn(psn: npt.NDArray[np.uint32], wanted: npt.NDArray[np.uint32]) -> Indices:
    """Where these PSNs are: by PSN, and those of one PSN in their order."""
    order = np.argsort(psn, kind="stable")
    chosen: Indices = order[np.isin(psn[order], wanted)]
    return chosen


def next_of_psn(psn: Indices, place: Indices) -> Indices:
    """Of each packet the place in time of the next one with the same PSN, -1: there is none."""
    order = np.lexsort((place, psn))
    following = np.full(len(psn), -1, np.int64)
    same = psn[order][1:] == psn[order][:-1]
    following[order[:-1][same]] = place[order[1:][same]]
    return following


def named(psn: int) -> str:
    """A PSN as the packet has it."""
    return f"PSN {psn % PSNS}"


def ranged(begin: int, end: int) -> str:
    """PSNs from `begin` to the one before `end`."""
    if end - begin == 1:
        return named(begin)
    return f"PSNs {begin % PSNS} to {(end - 1) % PSNS}"
