# SPDX-License-Identifier: GPL-2.0-or-later
"""The receiver's bitmap of a message while it fills, at the times of a ladder's rungs.

A run records when lost packets were dropped and when they arrived, and when the first and the last
packet of a message did. When the others arrived is interpolated between these: a message's packets
leave in the order of their indices. The interpolation is the project's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from softroce_lab.results.incidents import Incident, What
from softroce_lab.results.story import SENT, Story

MOST_CELLS = 96
ARRIVED, MISSING, TO_COME = "#", "x", "."


@dataclasses.dataclass(frozen=True, slots=True)
class Bitmap:
    """At one time."""

    cells: str  # of the packets, the first first: a cell each, or up to MOST_CELLS for all
    arrived: int  # packets
    missing: int  # packets that were lost and have not arrived


def bitmaps(tale: Story, times_ns: Sequence[int], *, in_order: bool) -> list[Bitmap]:
    """At each of these times, which ascend. `in_order`: a receiver keeps nothing behind a gap."""
    known, missing = (_in_order if in_order else _selective)(tale)
    fronts = _fronts(tale, known, times_ns)
    return [
        _bitmap(tale.packets, front, {each for each, span in missing.items() if _in(time_ns, span)})
        for time_ns, front in zip(times_ns, fronts, strict=True)
    ]


_Points = list[tuple[int, int]]  # time, and how many packets had been there or been lost
_Spans = dict[int, tuple[int, int]]  # of lost packets, from their drop to their arrival


def _in(time_ns: int, span: tuple[int, int]) -> bool:
    return span[0] <= time_ns < span[1]


def _over_ns(tale: Story) -> int:
    """When the message had arrived; the largest number: it never had."""
    received = tale.times["received_ns"]
    return received if received >= 0 else np.iinfo(np.int64).max


def _selective(tale: Story) -> tuple[_Points, _Spans]:
    """Packets arrive behind a gap, too."""
    points: _Points = []
    spans: _Spans = {}
    for each in _of_packets(tale):
        if each.what is What.DROP and not each.attempt:
            points.append((each.time_ns, each.first))
            spans.setdefault(each.first, (each.time_ns, _over_ns(tale)))
        elif each.what in (What.ARRIVED, What.RESTORED) and each.first in spans:
            spans[each.first] = spans[each.first][0], each.time_ns
    return points, spans


def _in_order(tale: Story) -> tuple[_Points, _Spans]:
    """What comes behind a gap is sent again, so the front waits there."""
    points: _Points = []
    spans: _Spans = {}
    gap = None
    for each in _of_packets(tale):
        if each.what is What.DROP and gap is None:
            gap = each.first
            points.append((each.time_ns, gap))
            spans[gap] = each.time_ns, _over_ns(tale)
        elif each.what is What.ARRIVED and each.first == gap:
            spans[gap] = spans[gap][0], each.time_ns
            points.append((each.time_ns, gap))
            gap = None
    return points, spans


def _of_packets(tale: Story) -> list[Incident]:
    return [each for each in tale.incidents if each.kind in SENT and each.first >= 0]


def _fronts(tale: Story, known: _Points, times_ns: Sequence[int]) -> list[int]:
    first, received = tale.times["first_received_ns"], tale.times["received_ns"]
    points = [each for each in sorted(known) if received < 0 or each[0] < received]
    begin = first if first >= 0 else max(tale.times["posted_ns"], 0)
    points = [(begin, 0), *(each for each in points if each[0] > begin)]
    if received >= 0:
        points.append((max(received, points[-1][0] + 1), tale.packets))
    x, y = zip(*points, strict=True)
    heights = np.minimum.accumulate(np.array(y)[::-1])[::-1]  # no packet arrived before its loss
    return [int(each) for each in np.interp(times_ns, x, heights)]


def _bitmap(packets: int, front: int, missing: set[int]) -> Bitmap:
    gone = {each for each in missing if each < packets}
    cells = min(packets, MOST_CELLS)
    edges = [at * packets // cells for at in range(cells + 1)]
    of = {int(np.searchsorted(edges, each, side="right")) - 1 for each in gone}
    text = "".join(
        MISSING if at in of else ARRIVED if edges[at + 1] <= front else TO_COME
        for at in range(cells)
    )
    return Bitmap(text, front - sum(each < front for each in gone), len(gone))
