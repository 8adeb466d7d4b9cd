# SPDX-License-Identifier: GPL-2.0-or-later
"""Packets by flow, one direction from one host to one queue pair, and by place of capture.

A capture of several interfaces holds the same packet several times, once on each. Of a flow the
rules about its sender use the place nearest to it, and the rules about its receiver at the
place nearest to that one. Hop limits give the order: each router decrements them. Where it does
not, because bridges lie between, places that have the same packets come one after the other, by
time; places that have different ones lie side by side, as those of a sprayed flow do.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from softroce_lab.check.evidence import Evidence, Indices, ends, once

HOPS_AT_SENDER = 64  # the hop limit with which RNICs of the lab, and Linux, send
_SAMPLE = 4096  # packets by which places are compared
_STRAY = 0.1  # of them may have been missed at one
_IDENTITY = ("opcode", "psn", "msn", "syndrome", "lab_index")


@dataclasses.dataclass(frozen=True)
class Flow:
    """One direction: from `source` to queue pair `qp` of `destination`, by one service."""

    source: bytes
    destination: bytes
    qp: int
    service: int  # the upper three bits of the opcode
    sent: Indices  # rows, as near to the sender as there are, by time
    arrivals: Indices  # as near to the receiver; the same, where there is one place
    at_sender: bool = False  # nothing was lost before the place of `sent`
    at_receiver: bool = False  # no loss after the place of `arrivals`

    @property
    def several_places(self) -> bool:
        return self.sent is not self.arrivals


@once
def flows(evidence: Evidence) -> list[Flow]:
    """All flows of RoCE packets, by their first packets."""
    rows = evidence.in_time[evidence.is_roce[evidence.in_time]]
    made = [_flow(evidence, part) for part in _parts(_keys(evidence, rows), rows)]
    return _located(evidence, sorted(made, key=lambda flow: flow.sent[0]))


def _keys(evidence: Evidence, rows: Indices) -> npt.NDArray[np.uint64]:
    """A number for each row that rows of one flow share."""
    packets = evidence.packets
    key = np.zeros(len(rows), np.uint64)
    for name in ("source", "destination"):
        words = np.ascontiguousarray(packets[name][rows]).view(">u8").reshape(-1, 2)
        for word in words.T:
            # What two columns have in common is a number below that of rows.
            _, number = np.unique(word, return_inverse=True)
            _, key = np.unique(key * np.uint64(len(rows)) + number.astype(np.uint64),
                               return_inverse=True)  # fmt: skip
            key = key.astype(np.uint64)
    service = (packets["opcode"][rows] >> 5).astype(np.uint64)
    return (
        key << np.uint64(27)
        | packets["destination_qp"][rows].astype(np.uint64) << np.uint64(3)
        | service
    )


def _parts(keys: npt.NDArray[np.uint64], rows: Indices) -> Iterator[Indices]:
    order = np.argsort(keys, kind="stable")
    bounds = np.flatnonzero(np.diff(keys[order])) + 1
    return (part for part in np.split(rows[order], bounds) if len(part))


def _flow(evidence: Evidence, rows: Indices) -> Flow:
    first = evidence.packets[rows[0]]
    places = _places(evidence, rows)
    return Flow(
        source=bytes(first["source"]),
        destination=bytes(first["destination"]),
        qp=int(first["destination_qp"]),
        service=int(first["opcode"]) >> 5,
        sent=places[0],
        arrivals=places[-1] if len(places) > 1 else places[0],
    )


def _places(evidence: Evidence, rows: Indices) -> list[Indices]:
    """Rows by place of capture, from the sender on."""
    hops = evidence.packets["hop_limit"][rows]
    at_once = evidence.packets["interface"][rows]
    if np.ptp(hops) == 0 and np.ptp(at_once) == 0:
        return [rows]
    if np.ptp(at_once) == 0:
        return _mirrored(evidence, rows, hops)
    places: list[Indices] = []
    for limit in np.unique(hops)[::-1]:
        here = hops == limit
        places += _one_after_the_other(evidence, rows[here], at_once[here])
    return places


def _one_after_the_other(evidence: Evidence, rows: Indices, of: npt.NDArray[Any]) -> list[Indices]:
    """Places between two routers, distinguished by `of`."""
    names = np.unique(of)
    if len(names) == 1:
        return [rows]
    parts = sorted((rows[of == name] for name in names), key=lambda part: float(
        np.median(evidence.place_in_time[part])))  # fmt: skip
    places: list[Indices] = []
    for part in parts:
        if places and not _same_packets(evidence, places[-1], part):
            both = np.concatenate((places[-1], part))
            places[-1] = both[np.argsort(evidence.place_in_time[both])]
        else:
            places.append(part)
    return places


def _mirrored(evidence: Evidence, rows: Indices, hops: npt.NDArray[Any]) -> list[Indices]:
    """Places of one interface, to which they are mirrored: or one, of a host whose hop limits vary.

    What passes the farther place was at the nearer one before, as often: of what a host sends with
    another hop limit only retransmissions were, and not all of it is sent again.
    """
    places: list[Indices] = []
    for limit in np.unique(hops)[::-1]:
        part = rows[hops == limit]
        if places and not _has_passed(evidence, places[-1], part):
            return [rows]
        places.append(part)
    return places


def _has_passed(evidence: Evidence, near: Indices, far: Indices) -> bool:
    """Whether, but for a few, all packets of a place were at the other one before."""
    if 2 * len(far) < len(near):
        return False
    under_way: collections.Counter[tuple[int, ...]] = collections.Counter()
    place, stray = evidence.place_in_time, 0
    there = near[place[near] <= place[far[:_SAMPLE][-1]]]
    both = np.concatenate((there, far[:_SAMPLE]))
    both = both[np.argsort(place[both])]
    is_far = np.isin(both, far[:_SAMPLE], assume_unique=True).tolist()
    for identity, arrives in zip(evidence.rows(both, _IDENTITY), is_far, strict=True):
        under_way[identity] += -1 if arrives else 1
        if under_way[identity] < 0:
            under_way[identity] = 0
            stray += 1
    return stray <= _STRAY * len(far[:_SAMPLE])


def _same_packets(evidence: Evidence, one: Indices, other: Indices) -> bool:
    """Whether what passed one place passed the other, too."""
    some = [_identities(evidence, part[:_SAMPLE]) for part in (one, other)]
    common = len(some[0] & some[1])
    return 2 * common > min(len(each) for each in some)


def _identities(evidence: Evidence, rows: Indices) -> set[tuple[int, ...]]:
    return set(evidence.rows(rows, _IDENTITY))


def _located(evidence: Evidence, all_flows: list[Flow]) -> list[Flow]:
    """The flows, with what is known of their ends: by the names of the lab's interfaces, or because
    the user named the place of the capture.
    """
    links = {n: ends(name) for n, name in evidence.interface_names().items() if "->" in name}
    complete = {
        number for number, each in enumerate(evidence.capture.interfaces) if not each.dropped
    }
    packets = evidence.packets
    home: dict[bytes, str] = {}
    for flow in all_flows:
        near, _ = links.get(int(packets["interface"][flow.sent[0]]), ("", ""))
        if near and packets["hop_limit"][flow.sent[0]] == HOPS_AT_SENDER:
            home[flow.source] = near
    located = []
    for flow in all_flows:
        first, last = (int(packets["interface"][rows[0]]) for rows in (flow.sent, flow.arrivals))
        near, far = links.get(first, ("", ""))[0], links.get(last, ("", ""))[1]
        known = evidence.options.at
        located.append(
            dataclasses.replace(
                flow,
                at_sender=flow.source in known
                or (near != "" and home.get(flow.source) == near and first in complete),
                at_receiver=flow.destination in known
                or (far != "" and home.get(flow.destination) == far),
            )
        )
    return located
