# SPDX-License-Identifier: GPL-2.0-or-later
"""Ring collectives: all-reduce in 2(N - 1) steps, and its two halves.

Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations (2009).
The buffer is cut into N chunks. In step s rank r sends chunk r - s to rank r + 1 (modulo N), which
adds it to its own in the first N - 1 steps, and keeps it in the others. A chunk is cut into
messages, and each goes on as soon as it has come, without waiting for the rest of its chunk.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np

from softroce_lab.plan.effects import stream_key
from softroce_lab.workloads.streams import elements
from softroce_lab.workloads.work import (
    ADD,
    FLOAT32,
    STORE,
    Buffer,
    Message,
    Sized,
    piece_count,
    pieces,
)


@dataclasses.dataclass(frozen=True)
class Ring(Sized):
    """What the collectives share; `size_bytes` is the whole vector."""

    dtype: np.dtype[np.generic] = FLOAT32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.elements < self.hosts:
            raise ValueError("a ring needs an element a host at least")

    @property
    @abc.abstractmethod
    def adding_steps(self) -> int:
        """The first steps, in which what comes is added."""

    @property
    @abc.abstractmethod
    def steps(self) -> int:
        """All steps."""

    @property
    def elements(self) -> int:
        """Of the vector."""
        return self.size_bytes // self.dtype.itemsize

    def buffer_bytes_of(self, host: int) -> int:  # noqa: D102
        return self.size_bytes if host in self.rank_of else 0

    def chunk(self, number: int) -> slice:
        """The elements of a chunk; sizes differ by one element at most."""
        number %= self.hosts
        total = self.elements
        return slice(number * total // self.hosts, (number + 1) * total // self.hosts)

    def _extent(self, number: int) -> tuple[int, int]:
        """Offset and length of a chunk, bytes."""
        part, width = self.chunk(number), self.dtype.itemsize
        return part.start * width, (part.stop - part.start) * width

    @property
    def _most_bytes(self) -> int:
        """Of a message: whole elements."""
        return self.message_bytes // self.dtype.itemsize * self.dtype.itemsize

    @property
    def message_count(self) -> int:  # noqa: D102
        chunks = (self._extent(number)[1] for number in range(self.hosts))
        return self.steps * sum(piece_count(length, self._most_bytes) for length in chunks)

    def messages(self) -> Iterator[Message]:  # noqa: D102
        for rank in range(self.hosts):
            for step in range(self.steps):
                yield from self._step(rank, step)

    def _step(self, rank: int, step: int) -> Iterator[Message]:
        """What a rank sends: in step 0 its own chunk, then what came in the step before."""
        start, length = self._extent(rank - step)
        before = self.ranks[rank - 1]
        for number, offset, size in pieces(length, self._most_bytes):
            yield Message(
                key=(0, step, number),
                source=self.ranks[rank],
                destination=self.ranks[(rank + 1) % self.hosts],
                length_bytes=size,
                source_offset=start + offset,
                destination_offset=start + offset,
                combine=ADD if step < self.adding_steps else STORE,
                after=((before, (0, step - 1, number)),) if step else (),
            )

    def initial(self, host: int, seed: int) -> Buffer:  # noqa: D102
        if host not in self.rank_of:
            return np.zeros(0, dtype=self.dtype)
        return elements(stream_key(seed, "buffer", host), self.elements, self.dtype)


@functools.lru_cache(maxsize=2)
def _vectors(ring: Ring, seed: int) -> list[Buffer]:
    """Every rank's buffer before."""
    return [ring.initial(host, seed) for host in ring.ranks]


def _sum(ring: Ring, number: int, last: int, vectors: list[Buffer]) -> Buffer:
    """A chunk as rank `last` has it after adding: in the ring's own order, for sums are rounded."""
    part = ring.chunk(number)
    total = vectors[number % ring.hosts][part]
    for further in range(1, (last - number) % ring.hosts + 1):
        total = total + vectors[(number + further) % ring.hosts][part]  # type: ignore[operator]
    return total


def _with_chunks(
    ring: Ring, host: int, seed: int, chunk: Callable[[int, list[Buffer]], Buffer]
) -> Buffer:
    """A host's buffer, its chunks as `chunk` makes them of all vectors if it takes part."""
    buffer = ring.initial(host, seed)
    if host in ring.rank_of:
        vectors = _vectors(ring, seed)
        for number in range(ring.hosts):
            buffer[ring.chunk(number)] = chunk(number, vectors)
    return buffer


@dataclasses.dataclass(frozen=True)
class ReduceScatter(Ring):
    """N - 1 steps; afterwards rank r has the sum in chunk r + 1, and parts of sums elsewhere."""

    kind: ClassVar = "ring-reduce-scatter"

    @property
    def adding_steps(self) -> int:  # noqa: D102
        return self.hosts - 1

    @property
    def steps(self) -> int:  # noqa: D102
        return self.hosts - 1

    def expected(self, host: int, seed: int) -> Buffer:  # noqa: D102
        def chunk(number: int, vectors: list[Buffer]) -> Buffer:
            return _sum(self, number, self.rank_of[host], vectors)

        return _with_chunks(self, host, seed, chunk)


@dataclasses.dataclass(frozen=True)
class AllGather(Ring):
    """N - 1 steps; rank r begins with chunk r, and in the end everybody has all chunks."""

    kind: ClassVar = "ring-all-gather"

    adding_steps: ClassVar = 0

    @property
    def steps(self) -> int:  # noqa: D102
        return self.hosts - 1

    def expected(self, host: int, seed: int) -> Buffer:  # noqa: D102
        def chunk(number: int, vectors: list[Buffer]) -> Buffer:
            return vectors[number][self.chunk(number)]

        return _with_chunks(self, host, seed, chunk)


@dataclasses.dataclass(frozen=True)
class RingAllReduce(Ring):
    """Reduce-scatter, then all-gather: 2(N - 1) steps; in the end everybody has the sums."""

    kind: ClassVar = "ring-all-reduce"

    @property
    def adding_steps(self) -> int:  # noqa: D102
        return self.hosts - 1

    @property
    def steps(self) -> int:  # noqa: D102
        return 2 * (self.hosts - 1)

    def expected(self, host: int, seed: int) -> Buffer:  # noqa: D102
        return _all_reduced(self, seed).copy() if host in self.rank_of else self.initial(host, seed)


@functools.lru_cache(maxsize=2)
def _all_reduced(ring: Ring, seed: int) -> Buffer:
    vectors = _vectors(ring, seed)
    chunks = [_sum(ring, number, number - 1, vectors) for number in range(ring.hosts)]
    return np.concatenate(chunks)
