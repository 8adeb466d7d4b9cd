# SPDX-License-Identifier: GPL-2.0-or-later
"""What the messages of an algorithm must await, from what they read and write.

A rank's transfers in the order of steps are a sequential program on its vector. A send requires the
last receives into the bytes that it reads. A receive that adds requires the one before it into
the same bytes, so that sums have one order, and that sends of these bytes have started, which
copies them. What is stored needs no requirement: it is a result of
what this rank sent, so all that it overwrites was delivered before.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from softroce_lab.workloads.collectives.shape import Transfer
from softroce_lab.workloads.message import ADD, Message
from softroce_lab.workloads.schedule import Schedule, Send, Vertex


class Cut(NamedTuple):
    """A message of a transfer, and the cells that it carries: pieces of chunks, never cut."""

    transfer: Transfer
    cells: range
    place: int  # of its first cell in its chunk
    offset_bytes: int
    length_bytes: int


class _Use(NamedTuple):
    """A vertex of a rank, with what orders it among the rank's."""

    step: int
    receives: bool  # behind all sends of the step
    listed: int
    vertex: int  # of its host
    cut: Cut


def schedule_of(cuts: Sequence[Cut], ranks: Sequence[int]) -> Schedule:
    """The graph of all hosts; cuts in the order in which they are sent between two ranks."""
    schedule = Schedule(ranks)
    uses: list[list[_Use]] = [[] for _ in ranks]
    for listed, (cut, message) in enumerate(zip(cuts, messages_of(cuts, ranks), strict=True)):
        for rank, receives in ((cut.transfer.source, False), (cut.transfer.destination, True)):
            index = len(schedule.of[ranks[rank]])
            uses[rank].append(_Use(cut.transfer.step, receives, listed, index, cut))
        schedule.transfer(message)
    for rank, program in enumerate(uses):
        program.sort(key=lambda use: use[:3])
        _require(schedule.of[ranks[rank]], program)
    return schedule


def _require(vertices: Sequence[Vertex], program: Sequence[_Use]) -> None:
    written: dict[int, int] = {}  # cell -> the last receive into it
    read: dict[int, list[int]] = {}  # cell -> the sends of it from copies, since then
    for use in program:
        vertex, cells = vertices[use.vertex], use.cut.cells
        last = {written[cell] for cell in cells if cell in written}
        if isinstance(vertex, Send):
            vertex.requires = tuple(sorted(last))
            for cell in cells if vertex.message.volatile else ():
                read.setdefault(cell, []).append(use.vertex)
            continue
        if use.cut.transfer.combine is ADD:
            vertex.requires = tuple(sorted(last))
            copied = {each for cell in cells for each in read.pop(cell, ())}
            vertex.irequires = tuple(sorted(copied))
        written.update(dict.fromkeys(cells, use.vertex))


def messages_of(cuts: Sequence[Cut], ranks: Sequence[int]) -> Iterator[Message]:
    """The messages of cuts, in their order."""
    numbers: dict[tuple[int, int, int], int] = collections.defaultdict(int)
    last_added = _last_added(cuts)
    for cut in cuts:
        step, source, destination, _, _, combine = cut.transfer
        number = numbers[source, destination, step]
        numbers[source, destination, step] += 1
        yield Message(
            key=(0, step, number),
            source=ranks[source],
            destination=ranks[destination],
            length_bytes=cut.length_bytes,
            source_offset=cut.offset_bytes,
            destination_offset=cut.offset_bytes,
            combine=combine,
            volatile=any(last_added.get((source, cell), -1) >= step for cell in cut.cells),
        )


def _last_added(cuts: Sequence[Cut]) -> dict[tuple[int, int], int]:
    """(rank, cell) -> the last step in which something is added to it."""
    found: dict[tuple[int, int], int] = {}
    for cut in cuts:
        if cut.transfer.combine is ADD:
            for cell in cut.cells:
                place = (cut.transfer.destination, cell)
                found[place] = max(cut.transfer.step, found.get(place, -1))
    return found
