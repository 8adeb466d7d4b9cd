# SPDX-License-Identifier: GPL-2.0-or-later
"""A collective operation on a vector, by one of its algorithms.

The vector is cut into the algorithm's chunks, a chunk into messages, and each message goes on as
soon as all that it carries has come, without waiting for the rest of its chunk.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from softroce_lab.plan.effects import stream_key
from softroce_lab.workloads.collectives import recursive, rings, trees
from softroce_lab.workloads.collectives.dataflow import Cut, messages_of, schedule_of
from softroce_lab.workloads.collectives.replay import replay
from softroce_lab.workloads.collectives.shape import Algorithm, Transfer
from softroce_lab.workloads.message import FLOAT32, Buffer, Message, piece_count, pieces
from softroce_lab.workloads.schedule import Schedule
from softroce_lab.workloads.streams import elements
from softroce_lab.workloads.work import Sized

ALGORITHMS: Mapping[str, Mapping[str, Algorithm]] = {
    "all-reduce": {
        "ring": rings.ALL_REDUCE,
        "recursive-doubling": recursive.ALL_REDUCE,
        "halving-doubling": recursive.ALL_REDUCE_HALVING,
        "binomial-tree": trees.ALL_REDUCE_BINOMIAL,
        "double-tree": trees.ALL_REDUCE_DOUBLE,
    },
    "reduce-scatter": {
        "ring": rings.REDUCE_SCATTER,
        "recursive-halving": recursive.REDUCE_SCATTER,
    },
    "all-gather": {"ring": rings.ALL_GATHER, "recursive-doubling": recursive.ALL_GATHER},
    "broadcast": {
        "ring": rings.BROADCAST,
        "binomial-tree": trees.BROADCAST_BINOMIAL,
        "double-tree": trees.BROADCAST_DOUBLE,
    },
}
"""By operation and name."""


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
