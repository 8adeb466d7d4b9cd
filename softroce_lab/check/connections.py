# SPDX-License-Identifier: GPL-2.0-or-later
"""Reliable connections of a capture: which responses belong to which requests.

Requests name the responder's queue pair, responses the requester's; no packet names both. The
two are learned from the connection manager's REQ and REP, where they are in the capture. Else by
PSNs: every response votes for the flow of the other direction that had, last before it, a request
of its PSN. A flow that has less than 80 % of the votes is paired with none: its responses are
counted, and their rules inconclusive.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from softroce_lab.check import opcodes
from softroce_lab.check.evidence import Evidence, Indices
from softroce_lab.check.flows import Flow, flows
from softroce_lab.check.opcodes import Family
from softroce_lab.telemetry.packets import Has, Packets

GENERAL_SERVICES_QP = 1
PATH_MTUS = (256, 512, 1024, 2048, 4096)
_VOTERS = 1024  # responses of a flow that vote
_ENOUGH = 0.8  # of the votes
# PSNs from one request to the next of a connection: what is farther is another connection.
_FARTHEST_AHEAD = 1 << 17
_FARTHEST_BACK = 1 << 22
_SILENCE_NS = 100_000_000  # between one run and the next
PSNS = 1 << 24
_SAME_AGAIN = ("opcode", "payload_bytes", "remote_address", "rkey", "dma_length")

_End = tuple[bytes, int]  # GID and number of a queue pair


@dataclasses.dataclass(frozen=True)
class Agreed:
    """The terms of a connection in the connection manager's messages."""

    retry_count: int | None = None
    path_mtu: int | None = None


@dataclasses.dataclass(frozen=True)
class Connection:
    """Requests of one side to a queue pair of the other, and the responses to them."""

    requests: Flow | None
    answers: Flow | None
    agreed: Agreed
    since: int = 0  # place in time of the first packet
    until: int = 1 << 62  # and behind the last one


def connections(evidence: Evidence) -> list[Connection]:
    """Every direction of every reliable connection, by time."""
    reliable = [flow for flow in flows(evidence) if flow.service == opcodes.RC]
    asking = [flow for flow in reliable if _any(evidence, flow, answers=False)]
    answering = [flow for flow in reliable if _any(evidence, flow, answers=True)]
    agreed, managed = _managed(evidence)
    partners = _partners(evidence, reliable, asking, answering, managed)
    found = []
    for flow in asking:
        partner = partners.get(_key(flow))
        terms = agreed.get((flow.destination, flow.qp), Agreed())
        found.append(Connection(flow, partner, terms))
    paired = {id(each.answers) for each in found if each.answers is not None}
    found += [Connection(None, flow, Agreed()) for flow in answering if id(flow) not in paired]
    return [part for each in found for part in successive(evidence, each)]


def _key(flow: Flow) -> tuple[bytes, bytes, int]:
    return flow.source, flow.destination, flow.qp


def _any(evidence: Evidence, flow: Flow, *, answers: bool) -> bool:
    return bool(
        np.any(opcodes.IS_RESPONSE[evidence.packets["opcode"][flow.sent]] == answers)
    ) or bool(np.any(opcodes.IS_RESPONSE[evidence.packets["opcode"][flow.arrivals]] == answers))


# ---------------------------------------------------------------- by the connection manager


def _managed(evidence: Evidence) -> tuple[dict[_End, Agreed], dict[_End, _End]]:
    """Terms by responder's end, and ends by the other end, from REQ and REP."""
    packets = evidence.packets
    is_mad = evidence.is_roce & (packets["destination_qp"] == GENERAL_SERVICES_QP)
    rows = np.flatnonzero(is_mad & (packets["has"] & Has.DETH != 0))
    if not len(rows):
        return {}, {}
    # Late: few captures need them.
    from softroce_lab.programs.rdmacm.messages import LayoutError, Mad, Rep, Req

    asked: dict[int, tuple[_End, Req]] = {}
    agreed, other_end = {}, {}
    for row in rows.tolist():
        source = bytes(packets["source"][row])
        try:
            message = Mad.parse(evidence.capture.payload(int(packets["number"][row]))).message
        except LayoutError:
            continue
        if isinstance(message, Req):
            asked[message.local_comm_id] = (source, message.local_qpn), message
        elif isinstance(message, Rep) and message.remote_comm_id in asked:
            one, request = asked[message.remote_comm_id]
            other = source, message.local_qpn
            mtu = PATH_MTUS[min(max(request.path_mtu, 1), 5) - 1]
            agreed[one] = agreed[other] = Agreed(request.retry_count, mtu)
            other_end[one], other_end[other] = other, one
    return agreed, other_end


# ---------------------------------------------------------------- by PSNs


def _partners(
    evidence: Evidence,
    reliable: list[Flow],
    asking: list[Flow],
    answering: list[Flow],
    managed: dict[_End, _End],
) -> dict[tuple[bytes, bytes, int], Flow]:
    """Of flows with requests, the flow of their responses."""
    by_key = {_key(flow): flow for flow in reliable}
    partners: dict[tuple[bytes, bytes, int], Flow] = {}
    for one, other in managed.items():
        there = by_key.get((one[0], other[0], other[1]))
        back = by_key.get((other[0], one[0], one[1]))
        if there is not None and back is not None:
            partners[_key(there)] = back
    left = [flow for flow in answering if flow not in partners.values()]
    for votes, there, back in sorted(_votes(evidence, asking, left), key=lambda vote: -vote[0]):
        _ = votes
        if _key(there) not in partners and back not in partners.values():
            partners[_key(there)] = back
            # The same two queue pairs, the other way round.
            partners.setdefault(_key(back), there)
    return partners


def _votes(
    evidence: Evidence, asking: list[Flow], answering: list[Flow]
) -> Iterator[tuple[int, Flow, Flow]]:
    """For each flow of responses, its votes for flows of requests."""
    by_hosts: dict[tuple[bytes, bytes], list[Flow]] = collections.defaultdict(list)
    for flow in asking:
        by_hosts[flow.source, flow.destination].append(flow)
    tables = {hosts: _asked(evidence, known) for hosts, known in by_hosts.items()}
    for flow in answering:
        hosts = flow.destination, flow.source
        if hosts not in tables:
            continue
        when, which = tables[hosts]
        votes = _vote(evidence, flow, when, which)
        if len(votes) and votes.max() >= _ENOUGH * votes.sum():
            yield int(votes.max()), by_hosts[hosts][int(votes.argmax())], flow


def _asked(evidence: Evidence, known: list[Flow]) -> tuple[Indices, Indices]:
    """PSN and time of every request, as one number each, in order; and whose it is."""
    packets = evidence.packets
    when, which = [], []
    for number, flow in enumerate(known):
        rows = flow.arrivals[~opcodes.IS_RESPONSE[packets["opcode"][flow.arrivals]]]
        when.append(_moment(evidence, rows))
        which.append(np.full(len(rows), number))
    moments = np.concatenate(when)
    order = np.argsort(moments)
    return moments[order], np.concatenate(which)[order]


def _moment(evidence: Evidence, rows: Indices) -> Indices:
    moment: Indices = evidence.packets["psn"][rows].astype(np.int64) << 38
    return moment | evidence.place_in_time[rows]


def _vote(evidence: Evidence, flow: Flow, when: Indices, which: Indices) -> Indices:
    packets = evidence.packets
    rows = flow.sent[opcodes.IS_RESPONSE[packets["opcode"][flow.sent]]]
    opcode, syndrome = packets["opcode"][rows], packets["syndrome"][rows]
    family = opcodes.FAMILY[opcode]
    # A NAK may name what did not come, and a response in the middle a PSN of no request.
    gap = opcodes.NAK << 5 | opcodes.SEQUENCE_ERROR
    shows = np.where(family == Family.READ_RESPONSE, opcodes.BEGINS[opcode], syndrome != gap)
    moments = _moment(evidence, rows[shows.astype(bool)][:_VOTERS])
    if not len(when):
        return np.zeros(0, np.int64)
    before = np.searchsorted(when, moments) - 1
    fits = (before >= 0) & (when[before] >> 38 == moments >> 38)
    return np.bincount(which[before[fits]])


# ---------------------------------------------------------------- one queue pair after another


def successive(evidence: Evidence, connection: Connection) -> Iterator[Connection]:
    """The parts of a connection whose queue pairs were used again: with PSNs far from those before,
    or, after a pause, with PSNs that go back and MSNs that count from the beginning.
    """
    flow = connection.requests
    if flow is None:
        yield connection
        return
    packets = evidence.packets
    rows = flow.arrivals[~opcodes.IS_RESPONSE[packets["opcode"][flow.arrivals]]]
    bounds = [0, *_begins(evidence, connection, rows), connection.until]
    for since, until in itertools.pairwise(bounds):
        yield dataclasses.replace(connection, since=since, until=until)


def _begins(evidence: Evidence, connection: Connection, rows: Indices) -> Iterator[int]:
    """Indices, in order of time, at which the queue pair was created again."""
    psns = unwrapped(evidence.packets["psn"][rows])
    times = evidence.times_ns(rows)
    top = np.maximum.accumulate(psns)[:-1]
    jumps = (psns[1:] - top > _FARTHEST_AHEAD) | (top - psns[1:] > _FARTHEST_BACK)
    silent = np.diff(times) >= _SILENCE_NS
    if not np.any(jumps) and not np.any(silent & (psns[1:] <= top)):
        return
    # What follows a jump counts from there on.
    begin, highest = 0, int(psns[0])
    anew = _Anew(evidence, connection, rows, psns)
    for at, psn in enumerate(psns.tolist()):
        far = psn - highest > _FARTHEST_AHEAD or highest - psn > _FARTHEST_BACK
        back = at > 0 and silent[at - 1] and psn <= highest
        if far or (back and anew.begins(at, begin)):
            yield _first_seen(evidence, connection.requests, rows, at)
            begin, highest = at, psn
        highest = max(highest, psn)


def _first_seen(evidence: Evidence, flow: Flow | None, arrivals: Indices, at: int) -> int:
    """The index, in order of time, of a received request: where it left, if captured there."""
    place, psn = evidence.place_in_time, evidence.packets["psn"]
    since, until = int(place[arrivals[at - 1]]), int(place[arrivals[at]])
    sent = arrivals[:0] if flow is None else flow.sent
    sent = sent[(place[sent] > since) & (place[sent] < until)]
    sent = sent[~opcodes.IS_RESPONSE[evidence.packets["opcode"][sent]]]
    same = sent[psn[sent] == psn[arrivals[at]]]
    return int(place[same[0]]) if len(same) else until


class _Anew:
    """Whether a request, after a pause, is of another connection than those before it.

    The responses show it: their MSNs start again. UC never retransmits, so no test is needed.
    """

    def __init__(
        self, evidence: Evidence, connection: Connection, rows: Indices, psns: Indices
    ) -> None:
        self._packets, self._rows, self._psns = evidence.packets, rows, psns
        self._is_uc = connection.requests is not None and connection.requests.service == opcodes.UC
        answers = rows[:0] if connection.answers is None else connection.answers.sent
        reported = answers[self._packets["has"][answers] & Has.AETH != 0]
        self._msns = self._packets["msn"][reported].astype(np.int64)
        self._answered = evidence.place_in_time[reported]
        self._asked = evidence.place_in_time[rows]

    def begins(self, at: int, since: int) -> bool:
        """Request `at`; those before it began with `since`."""
        is_first = bool(self._psns[at] <= self._psns[since])
        following = int(np.searchsorted(self._answered, self._asked[at]))
        if self._is_uc or not 0 < following < len(self._msns):
            return is_first and self._is_uc
        before, count = self._msns[following - 1 : following + 1].tolist()
        if is_first:
            return count < before or (count == before and self._is_other(at, since))
        # Else it may be a duplicate that is acknowledged with a wrong MSN.
        asked = int(np.searchsorted(self._asked, self._answered[following])) - at
        return bool(count < before and count <= asked)

    def _is_other(self, at: int, since: int) -> bool:
        """Not one that was sent before."""
        same = since + np.flatnonzero(self._psns[since:at] == self._psns[at])
        return len(same) > 0 and _differs(self._packets, self._rows[same[-1]], self._rows[at])


def _differs(packets: Packets, one: int, other: int) -> bool:
    return any(packets[name][one] != packets[name][other] for name in _SAME_AGAIN)


def unwrapped(psns: Indices) -> Indices:
    """PSNs that go on behind 2**24 - 1, each near the one before it (IBA 9.7.2)."""
    numbers = psns.astype(np.int64)
    half = PSNS // 2
    steps = (np.diff(numbers) + half) % PSNS - half
    first = numbers[:1] + PSNS
    return np.concatenate((first, first + np.cumsum(steps)))
