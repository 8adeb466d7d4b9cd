# SPDX-License-Identifier: GPL-2.0-or-later
"""The packets of a reliable connection as columns, seen from one place.

PSNs count on behind 2**24 - 1 here (`psn`), so that they can be compared; `end` is that of the
next packet: a READ takes as many as its response has packets (IBA 9.7.3.1).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from softroce_lab.check import opcodes
from softroce_lab.check.connections import PATH_MTUS, PSNS, Connection, unwrapped
from softroce_lab.check.evidence import Evidence, Indices, Mask
from softroce_lab.check.opcodes import Family

_PLACE_BITS = 33  # places in time; PSNs that count on have the rest of 63 bits


class Moments:
    """Packets by PSN, and those of one PSN by time."""

    def __init__(self, psn: Indices, place: Indices) -> None:
        self._order = np.lexsort((place, psn))
        self._key = _moment(psn[self._order], place[self._order])

    def last(self, psn: int, before: int) -> int | None:
        """Index of the last packet of a PSN ahead of a place in time."""
        at = int(np.searchsorted(self._key, _moment(psn, before))) - 1
        return self._index(at, psn)

    def next(self, psn: int, since: int) -> int | None:
        """Index of the first packet of a PSN from a place in time on."""
        return self._index(int(np.searchsorted(self._key, _moment(psn, since))), psn)

    def _index(self, at: int, psn: int) -> int | None:
        inside = 0 <= at < len(self._key) and int(self._key[at]) >> _PLACE_BITS == psn
        return int(self._order[at]) if inside else None


_Number = TypeVar("_Number", int, Indices)


def _moment(psn: _Number, place: _Number) -> _Number:
    return psn << _PLACE_BITS | place


@dataclasses.dataclass(frozen=True)
class _Packets:
    """By time. `rows` are indices of the capture's rows, `place` their places in time."""

    rows: Indices
    place: Indices
    number: npt.NDArray[np.uint32]
    time_ns: Indices
    opcode: npt.NDArray[np.uint8]
    family: npt.NDArray[np.uint8]
    payload_bytes: Indices
    lost: Mask  # behind this place
    psn: Indices

    def __len__(self) -> int:
        return len(self.rows)


@dataclasses.dataclass(frozen=True)
class Requests(_Packets):
    """Requests, or packets of UC."""

    begins: Mask
    ends: Mask
    end: Indices  # PSN behind it
    dma_length: Indices
    asks: Mask  # for an acknowledgement

    @functools.cached_property
    def top(self) -> Indices:
        """PSN behind all that was sent before."""
        tops = np.maximum.accumulate(self.end)
        return np.concatenate((self.psn[:1], tops[:-1]))

    @functools.cached_property
    def is_new(self) -> Mask:
        """Not sent before, as far as was seen."""
        return self.psn >= self.top

    @functools.cached_property
    def once(self) -> Indices:
        """Indices of each request's first packet on the wire, in the order of PSNs.

        A READ of the rest of an earlier one is left out.
        """
        _, first = np.unique(self.psn, return_index=True)
        behind = np.maximum.accumulate(self.end[first])
        inside = np.concatenate(([False], self.psn[first][1:] < behind[:-1]))
        once: Indices = first[~(inside & (self.family[first] == Family.READ))]
        return once

    def of_psn(self, psns: Indices) -> tuple[Indices, Indices]:
        """`once`, and for each PSN which of them it belongs to; -1: to none that was seen."""
        once = self.once
        of = np.searchsorted(self.psn[once], psns, "right") - 1
        inside = of >= 0
        inside[inside] = psns[inside] < self.end[once[of[inside]]]
        return once, np.where(inside, of, -1)

    @functools.cached_property
    def _results(self) -> tuple[Mask, Indices, Indices]:
        """Of `once`: READs and atomics, the first and the last of them in a row."""
        once = self.once
        mask = np.isin(self.family[once], (Family.READ, Family.ATOMIC))
        at = np.arange(len(once))
        joined = mask[1:] & mask[:-1] & (self.end[once][:-1] == self.psn[once][1:])
        goes_on = np.concatenate((joined, [False]))[: len(once)]
        begun = np.concatenate(([False], joined))[: len(once)]
        first = np.maximum.accumulate(np.where(begun, 0, at))
        last = np.minimum.accumulate(np.where(goes_on, len(once), at)[::-1])[::-1]
        return mask, first, last

    def before_results(self, psn: Indices) -> Indices:
        """These PSNs; if READs or atomics end there, the PSN at which the first of them begins."""
        if not len(self):
            return psn
        mask, first, _ = self._results
        at = np.maximum(np.searchsorted(self.psn[self.once], psn) - 1, 0)
        behind = mask[at] & (self.end[self.once][at] == psn)
        return np.where(behind, self.psn[self.once][first[at]], psn)

    def results_from(self, psn: Indices, before: Indices) -> Indices:
        """How many READs and atomics in a row begin at these PSNs, ahead of a place in time."""
        if not len(self):
            return np.zeros(len(psn), dtype=np.int64)
        mask, _, last = self._results
        at = np.minimum(np.searchsorted(self.psn[self.once], psn), len(self.once) - 1)
        begin = mask[at] & (self.psn[self.once][at] == psn)
        came = np.searchsorted(np.maximum.accumulate(self.place[self.once]), before)
        return np.where(begin, np.maximum(np.minimum(last[at] + 1, came) - at, 0), 0)

    @functools.cached_property
    def moments(self) -> Moments:
        return Moments(self.psn, self.place)

    @functools.cached_property
    def holes(self) -> list[tuple[int, int]]:
        """PSNs that never came, between the least and the greatest: from, and behind."""
        order = np.argsort(self.psn, kind="stable")
        behind = np.maximum.accumulate(self.end[order])
        at = np.flatnonzero(self.psn[order][1:] > behind[:-1])
        return [(int(behind[i]), int(self.psn[order][i + 1])) for i in at]


@dataclasses.dataclass(frozen=True)
class Answers(_Packets):
    """Responses."""

    syndrome: npt.NDArray[np.uint8]
    msn: Indices

    def _are(self, kind: int) -> Mask:
        mask: Mask = (self.family == Family.ACKNOWLEDGE) & (self.syndrome >> 5 == kind)
        return mask

    @functools.cached_property
    def is_ack(self) -> Mask:
        return self._are(opcodes.ACK)

    @functools.cached_property
    def is_rnr(self) -> Mask:
        return self._are(opcodes.RNR_NAK)

    @functools.cached_property
    def is_sequence_nak(self) -> Mask:
        """A NAK that names the PSN that is missing."""
        return self._are(opcodes.NAK) & self._is_sequence_error

    @functools.cached_property
    def is_fatal(self) -> Mask:
        return self._are(opcodes.NAK) & ~self._is_sequence_error

    @functools.cached_property
    def _is_sequence_error(self) -> Mask:
        mask: Mask = self.syndrome & 31 == opcodes.SEQUENCE_ERROR
        return mask

    @functools.cached_property
    def is_result(self) -> Mask:
        """Of a READ or an atomic."""
        mask: Mask = self.family != Family.ACKNOWLEDGE
        return mask

    @functools.cached_property
    def has_aeth(self) -> Mask:
        """All but READ responses in the middle."""
        has: Mask = opcodes.BEGINS[self.opcode] | opcodes.ENDS[self.opcode]
        return has

    @functools.cached_property
    def through(self) -> Indices:
        """PSN behind the last one that it acknowledges: a NAK does those before it."""
        through: Indices = self.psn + (self.is_ack | self.is_result)
        return through


@dataclasses.dataclass(frozen=True)
class Seen:
    """A connection as it was seen at one place."""

    requests: Requests
    answers: Answers
    path_mtu: int
    at_requester: bool  # nothing gets lost between here and the requester
    at_responder: bool  # or the responder: so it is known, not guessed


def has_several_places(connection: Connection) -> bool:
    """Whether requester and responder are seen at different ones."""
    return any(
        flow is not None and flow.several_places
        for flow in (connection.requests, connection.answers)
    )


def seen(evidence: Evidence, connection: Connection, *, near_requester: bool) -> Seen:
    """As near to the requester, or to the responder, as the capture has it."""
    ask = answer = np.empty(0, np.int64)
    flow, back = connection.requests, connection.answers
    if flow:
        ask = flow.sent if near_requester else flow.arrivals
    if back:
        answer = back.arrivals if near_requester else back.sent
    ask = _of(evidence, connection, ask, answers=False)
    answer = _of(evidence, connection, answer, answers=True)
    mtu = connection.agreed.path_mtu or path_mtu(evidence, np.concatenate((ask, answer)))
    requests = requests_of(evidence, ask, mtu)
    return Seen(
        requests=requests,
        answers=_answers(evidence, answer, requests),
        path_mtu=mtu,
        at_requester=bool(flow and back and flow.at_sender and back.at_receiver),
        at_responder=bool(flow and back and flow.at_receiver and back.at_sender),
    )


def _of(evidence: Evidence, connection: Connection, rows: Indices, *, answers: bool) -> Indices:
    place = evidence.place_in_time[rows]
    wanted = opcodes.IS_RESPONSE[evidence.packets["opcode"][rows]] == answers
    wanted &= (place >= connection.since) & (place < connection.until)
    chosen: Indices = rows[wanted]
    return chosen


def path_mtu(evidence: Evidence, rows: Indices) -> int:
    """The user's value, or the length of First and Middle packets, which are full (IBA
    9.7.4.1.6); if there are none, the least that holds all.
    """
    if evidence.options.path_mtu is not None:
        return evidence.options.path_mtu
    packets = evidence.packets
    opcode, size = packets["opcode"][rows], packets["payload_bytes"][rows]
    full = size[~opcodes.ENDS[opcode]]
    if len(full):
        sizes, counts = np.unique(full, return_counts=True)
        usual = int(sizes[counts.argmax()])
    else:
        usual = int(size.max(initial=0))
    return next((mtu for mtu in PATH_MTUS if mtu >= usual), PATH_MTUS[-1])


def _common(evidence: Evidence, rows: Indices) -> dict[str, npt.NDArray[np.generic]]:
    packets = evidence.packets
    opcode = packets["opcode"][rows]
    return {
        "rows": rows,
        "place": evidence.place_in_time[rows],
        "number": packets["number"][rows],
        "time_ns": evidence.times_ns(rows),
        "opcode": opcode,
        "family": opcodes.FAMILY[opcode],
        "payload_bytes": packets["payload_bytes"][rows].astype(np.int64),
        "lost": evidence.is_lost[rows],
    }


def requests_of(evidence: Evidence, rows: Indices, mtu: int) -> Requests:
    packets, common = evidence.packets, _common(evidence, rows)
    psn = unwrapped(packets["psn"][rows])
    length = packets["dma_length"][rows].astype(np.int64)
    taken = np.where(common["family"] == Family.READ, np.maximum(1, -(-length // mtu)), 1)
    return Requests(
        **common,  # type: ignore[arg-type]
        begins=opcodes.BEGINS[common["opcode"]],
        ends=opcodes.ENDS[common["opcode"]],
        psn=psn,
        end=psn + taken,
        dma_length=length,
        asks=packets["bth_flags"][rows] & 4 != 0,
    )


def _answers(evidence: Evidence, rows: Indices, requests: Requests) -> Answers:
    packets, common = evidence.packets, _common(evidence, rows)
    return Answers(
        **common,  # type: ignore[arg-type]
        psn=_near(packets["psn"][rows].astype(np.int64), common["place"], requests),
        syndrome=packets["syndrome"][rows],
        msn=packets["msn"][rows].astype(np.int64),
    )


def _near(psn: Indices, place: npt.NDArray[np.generic], requests: Requests) -> Indices:
    """PSNs of responses, near that of the request before them."""
    if not len(requests):
        return unwrapped(psn)
    before = np.maximum(np.searchsorted(requests.place, place) - 1, 0)
    base, half = requests.psn[before], PSNS // 2
    near: Indices = base + (psn - base + half) % PSNS - half
    return near
