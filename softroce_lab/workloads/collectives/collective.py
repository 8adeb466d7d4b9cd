# SPDX-License-Identifier: GPL-2.0-or-later
"""A collective operation on a vector, by one of its algorithms.

The vector is cut into the algorithm's chunks, a chunk into messages, and each message goes on as
soon as all that it carries has come, without waiting for the rest of its chunk.

A rank's transfers in the order of steps are a sequential program on its vector. A send requires the
last receives into the bytes that it reads. A receive that adds requires the one before it into
the same bytes, so that sums have one order, and that sends of these bytes have started, which
copies them. What is stored needs no requirement: it is a result of
what this rank sent, so all that it overwrites was delivered before.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from softroce_lab.plan.effects import stream_key
from softroce_lab.workloads.collectives.algorithms import ALGORITHMS, Algorithm, Transfer
from softroce_lab.workloads.message import ADD, FLOAT32, Buffer, Message, piece_count, pieces
from softroce_lab.workloads.schedule import Schedule, Send, Vertex
from softroce_lab.workloads.streams import elements
from softroce_lab.workloads.work import Sized


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


def replay(
    transfers: Iterable[Transfer],
    before: Mapping[int, Buffer],
    elements: Callable[[Transfer], slice],
) -> dict[int, Buffer]:
    """Every rank's vector afterwards. `elements`: which of the vector a transfer carries."""
    vectors = {rank: vector.copy() for rank, vector in before.items()}
    ordered = sorted(transfers, key=lambda each: each.step)  # stable: then as listed
    for _, group in itertools.groupby(ordered, key=lambda each: each.step):
        step = list(group)
        read = [vectors[each.source][elements(each)].copy() for each in step]
        for each, data in zip(step, read, strict=True):
            part = elements(each)
            if each.combine is ADD:
                vectors[each.destination][part] += data  # type: ignore[misc]
            else:
                vectors[each.destination][part] = data
    return vectors


@dataclasses.dataclass(frozen=True)
class Collective(Sized):
    """`size_bytes` is the whole vector, which every rank has room for."""

    dtype: np.dtype[np.generic] = FLOAT32
    operation: str = "all-reduce"
    algorithm: str = "ring"

    kind: ClassVar = "collective"

    def __post_init__(self) -> None:
        """ValueError for what cannot be: experiment files are checked before, with words."""
        super().__post_init__()
        if self.elements < self.chunks:
            raise ValueError(f"the vector needs {self.chunks} elements at least, one a chunk")
        if self.shape.powers_of_two and self.hosts.bit_count() != 1:
            raise ValueError(f"{self.name} takes a power of two of hosts")

    @property
    def name(self) -> str:
        return f"{self.algorithm}-{self.operation}"

    @property
    def shape(self) -> Algorithm:
        """The algorithm."""
        return ALGORITHMS[self.operation][self.algorithm]

    @property
    def elements(self) -> int:
        """Of the vector."""
        return self.size_bytes // self.dtype.itemsize

    @property
    def chunks(self) -> int:
        """That the algorithm cuts the vector into; their sizes differ by one element at most."""
        return self.shape.chunks(self.hosts)

    @property
    def vector_bytes(self) -> int:
        """What nccl-tests counts: the whole vector."""
        return self.size_bytes

    @property
    def bus_factor(self) -> float:
        """Bandwidth of the busiest link over `size_bytes` a time, at the least (nccl-tests)."""
        once = (self.hosts - 1) / self.hosts
        return {"all-reduce": 2 * once, "broadcast": 1.0}.get(self.operation, once)

    def buffer_bytes_of(self, host: int) -> int:
        return self.size_bytes if host in self.rank_of else 0

    def part(self, transfer: Transfer) -> slice:
        """The elements that a transfer carries."""
        return slice(self._begin(transfer.first), self._begin(transfer.first + transfer.chunks))

    def _begin(self, chunk: int) -> int:
        return chunk * self.elements // self.chunks

    # ---------------------------------------------------------------- messages

    @property
    def longest_message_bytes(self) -> int:
        return min(self._most_bytes, self.size_bytes)

    @property
    def message_count(self) -> int:
        return len(self._cuts)

    def messages(self) -> Iterator[Message]:
        return messages_of(self._cuts, self.ranks)

    def schedule(self) -> Schedule:
        return schedule_of(self._cuts, self.ranks)

    @property
    def _most_bytes(self) -> int:
        """Of a message: whole elements."""
        return self.message_bytes // self.dtype.itemsize * self.dtype.itemsize

    @functools.cached_property
    def _cuts(self) -> list[Cut]:
        cuts = [cut for each in self.shape.transfers(self.hosts) for cut in self._cut(each)]
        if self.shape.pipelined:
            cuts.sort(key=lambda cut: cut.transfer.step + cut.place)
        return cuts

    def _cut(self, transfer: Transfer) -> Iterator[Cut]:
        """The messages of a transfer: as many neighbouring cells each as fit."""
        begin, place, length, cells = 0, 0, 0, range(0)
        for chunk in range(transfer.first, transfer.first + transfer.chunks):
            for number, (offset, size) in enumerate(self._cells[chunk]):
                cell = self._first_cell[chunk] + number
                if length and length + size > self._most_bytes:
                    yield Cut(transfer, cells, place, begin, length)
                    length = 0
                if not length:
                    begin, place, cells = offset, number, range(cell, cell)
                cells, length = range(cells.start, cell + 1), length + size
        yield Cut(transfer, cells, place, begin, length)

    @functools.cached_property
    def _cells(self) -> list[list[tuple[int, int]]]:
        """Of each chunk the (offset, length) of its pieces, bytes."""
        width = self.dtype.itemsize
        bounds = [self._begin(chunk) * width for chunk in range(self.chunks + 1)]
        return [
            [(start + offset, size) for _, offset, size in pieces(end - start, self._most_bytes)]
            for start, end in itertools.pairwise(bounds)
        ]

    @functools.cached_property
    def _first_cell(self) -> list[int]:
        """Of each chunk."""
        width = self.dtype.itemsize
        found = [0]
        for chunk in range(self.chunks):
            length = (self._begin(chunk + 1) - self._begin(chunk)) * width
            found.append(found[-1] + piece_count(length, self._most_bytes))
        return found

    # ---------------------------------------------------------------- bytes

    def initial(self, host: int, seed: int) -> Buffer:
        if host not in self.rank_of:
            return np.zeros(0, dtype=self.dtype)
        return elements(stream_key(seed, "buffer", host), self.elements, self.dtype)

    def expected(self, host: int, seed: int) -> Buffer:
        if host not in self.rank_of:
            return self.initial(host, seed)
        return _replayed(self, seed)[self.rank_of[host]].copy()


@functools.lru_cache(maxsize=2)
def _replayed(collective: Collective, seed: int) -> dict[int, Buffer]:
    before = {rank: collective.initial(host, seed) for host, rank in collective.rank_of.items()}
    with np.errstate(over="ignore"):
        return replay(collective.shape.transfers(collective.hosts), before, collective.part)
