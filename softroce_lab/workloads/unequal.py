# SPDX-License-Identifier: GPL-2.0-or-later
"""All-to-all with a size for each pair of hosts: MPI's alltoallv."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from softroce_lab.plan.effects import stream_key
from softroce_lab.workloads.message import UINT8, Buffer, Message, piece_count, pieces
from softroce_lab.workloads.streams import random_bytes
from softroce_lab.workloads.work import Buffered

Sizes = tuple[tuple[int, ...], ...]
"""Bytes, by the rank of the source and by that of the destination."""


@dataclasses.dataclass(frozen=True)
class UnequalAllToAll(Buffered):
    """Every rank sends each other one its bytes, its neighbour first; of 0 bytes no message.

    A host's buffer is what it sends, and behind it what it receives, each in the order of ranks.
    """

    ranks: tuple[int, ...]
    sizes: Sizes
    message_bytes: int
    dtype: np.dtype[np.generic] = UINT8

    name: ClassVar = "unequal-all-to-all"

    def __post_init__(self) -> None:
        """ValueError for what a rank would send to itself."""
        if any(self.sizes[rank][rank] for rank in range(self.hosts)):
            raise ValueError("no rank sends to itself")

    @property
    def longest_message_bytes(self) -> int:
        return min(self.message_bytes, max(size for _, _, size in self._flows()))

    @property
    def message_count(self) -> int:
        return sum(piece_count(size, self.message_bytes) for _, _, size in self._flows() if size)

    def _flows(self) -> Iterator[tuple[int, int, int]]:
        """(source, destination, bytes), ranks: in the order of the distance."""
        for source in range(self.hosts):
            for distance in range(1, self.hosts):
                destination = (source + distance) % self.hosts
                yield source, destination, self.sizes[source][destination]

    @functools.cached_property
    def _rank_of(self) -> Mapping[int, int]:
        return {host: rank for rank, host in enumerate(self.ranks)}

    @functools.cached_property
    def _sent_at(self) -> npt.NDArray[np.int64]:
        """Offsets by source and destination; the last column is the size of the area."""
        return _begins(np.array(self.sizes, dtype=np.int64))

    @functools.cached_property
    def _received_at(self) -> npt.NDArray[np.int64]:
        """The same in the area that is received, by destination and source."""
        return _begins(np.array(self.sizes, dtype=np.int64).T)

    def buffer_bytes_of(self, host: int) -> int:
        if host not in self._rank_of:
            return 0
        rank = self._rank_of[host]
        return int(self._sent_at[rank, -1] + self._received_at[rank, -1])

    def messages(self) -> Iterator[Message]:
        for source, destination, size in self._flows():
            at = int(self._sent_at[source, destination])
            to = int(self._sent_at[destination, -1] + self._received_at[destination, source])
            for number, offset, length in pieces(size, self.message_bytes) if size else ():
                yield Message(
                    (0, 0, number),
                    self.ranks[source],
                    self.ranks[destination],
                    length,
                    at + offset,
                    to + offset,
                )

    def initial(self, host: int, seed: int) -> Buffer:
        buffer = np.zeros(self.buffer_bytes_of(host), dtype=np.uint8)
        if host in self._rank_of:
            size = int(self._sent_at[self._rank_of[host], -1])
            buffer[:size] = random_bytes(stream_key(seed, "buffer", host), 0, size)
        return buffer

    def expected(self, host: int, seed: int) -> Buffer:
        buffer = self.initial(host, seed)
        if host not in self._rank_of:
            return buffer
        rank = self._rank_of[host]
        area = buffer[int(self._sent_at[rank, -1]) :]
        for source, other in enumerate(self.ranks):
            size, to = self.sizes[source][rank], int(self._received_at[rank, source])
            key, at = stream_key(seed, "buffer", other), int(self._sent_at[source, rank])
            area[to : to + size] = random_bytes(key, at, size)
        return buffer


def _begins(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where each of a row begins if they lie one behind the other, and where the last one ends."""
    return np.concatenate([np.zeros((len(sizes), 1), np.int64), sizes.cumsum(axis=1)], axis=1)
