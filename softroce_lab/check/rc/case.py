# SPDX-License-Identifier: GPL-2.0-or-later
"""One reliable connection under check: the input of the rules, and their findings."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from softroce_lab.check import fault_rules, opcodes
from softroce_lab.check.connections import Connection
from softroce_lab.check.evidence import Evidence, Indices, Mask
from softroce_lab.check.opcodes import Family
from softroce_lab.check.rc import walk as rc_walk
from softroce_lab.check.rc.packets import (
    Seen,
    has_several_places,
    seen_at_requester,
    seen_at_responder,
)
from softroce_lab.check.rc.walk import Place, Walk
from softroce_lab.check.verdict import Tally

_PSN_MASK = (1 << 24) - 1
OVERTAKEN = "answers may have overtaken each other before the capture"
_UNDER_WAY_NS = 100_000_000  # at most, between a request and its response
_RESULTS = (Family.READ, Family.ATOMIC)  # families of requests whose responses carry results


@dataclasses.dataclass
class Case:
    """A connection with its views, made when a rule asks for them."""

    evidence: Evidence
    connection: Connection
    tally: Mapping[str, Tally]  # of all rules; their checks are called with the case alone

    @functools.cached_property
    def near_responder(self) -> Seen:
        """As near to the responder as the capture has it."""
        return seen_at_responder(self.evidence, self.connection)

    @functools.cached_property
    def near_requester(self) -> Seen:
        """As near to the requester; the same, where there is one place of capture."""
        if has_several_places(self.connection):
            return seen_at_requester(self.evidence, self.connection)
        return self.near_responder

    @functools.cached_property
    def walk(self) -> Walk:
        """The responder's expected PSN, as it was seen near it."""
        return rc_walk.walk(self.near_responder)

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
        same &= (packets["psn"].astype(np.int64) - begin) % (_PSN_MASK + 1) < end - begin
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
    return f"PSN {psn & _PSN_MASK}"


def ranged(begin: int, end: int) -> str:
    """PSNs from `begin` to the one before `end`."""
    if end - begin == 1:
        return named(begin)
    return f"PSNs {begin & _PSN_MASK} to {(end - 1) & _PSN_MASK}"
