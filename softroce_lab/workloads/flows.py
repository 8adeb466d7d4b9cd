# SPDX-License-Identifier: GPL-2.0-or-later
"""Workloads that copy: point to point, permutation, incast, scatter, all-to-all.

All of an operation is one step: it is over when its last message is.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

from softroce_lab.plan.effects import stream_key
from softroce_lab.workloads.message import Message, piece_count, pieces
from softroce_lab.workloads.streams import Stream
from softroce_lab.workloads.work import Copying, Sized


class Flow(NamedTuple):
    """`size_bytes` from one rank to another, at these offsets of their two areas."""

    source: int  # ranks
    destination: int
    source_at: int
    destination_at: int


@dataclasses.dataclass(frozen=True)
class Flows(Copying, Sized):
    """A set of flows of one size."""

    @abc.abstractmethod
    def flows(self) -> Iterator[Flow]:
        """All flows, those of one source in the order in which they begin."""

    def sends_bytes(self, rank: int) -> int:
        """Size of the area that a rank sends from."""
        return self.size_bytes

    def receives_bytes(self, rank: int) -> int:
        """Size of the area that a rank receives into."""
        return self.size_bytes

    @property
    @abc.abstractmethod
    def flow_count(self) -> int:
        """How many flows there are."""

    @property
    def message_count(self) -> int:
        return self.flow_count * piece_count(self.size_bytes, self.message_bytes)

    @functools.cached_property
    def areas(self) -> Mapping[int, tuple[int, int]]:
        return {
            host: (self.sends_bytes(rank), self.receives_bytes(rank))
            for host, rank in self.rank_of.items()
        }

    def messages(self) -> Iterator[Message]:
        sends = [self.sends_bytes(rank) for rank in range(self.hosts)]
        for flow in self.flows():
            to = sends[flow.destination] + flow.destination_at
            for number, offset, length in pieces(self.size_bytes, self.message_bytes):
                yield Message(
                    key=(0, 0, number),
                    source=self.ranks[flow.source],
                    destination=self.ranks[flow.destination],
                    length_bytes=length,
                    source_offset=flow.source_at + offset,
                    destination_offset=to + offset,
                )


@dataclasses.dataclass(frozen=True)
class PointToPoint(Flows):
    """The first rank sends to the second."""

    kind: ClassVar = "point-to-point"
    flow_count: ClassVar = 1

    def sends_bytes(self, rank: int) -> int:
        return self.size_bytes if rank == 0 else 0

    def receives_bytes(self, rank: int) -> int:
        return self.size_bytes if rank == 1 else 0

    def flows(self) -> Iterator[Flow]:
        yield Flow(0, 1, 0, 0)


@dataclasses.dataclass(frozen=True)
class Permutation(Flows):
    """Every rank sends to one other and receives from one other, drawn from `seed`."""

    kind: ClassVar = "permutation"

    seed: int = 0

    @property
    def flow_count(self) -> int:
        return self.hosts

    def flows(self) -> Iterator[Flow]:
        drawn = Stream(stream_key(self.seed, "permutation", self.hosts)).derangement(self.hosts)
        return (Flow(source, destination, 0, 0) for source, destination in enumerate(drawn))


@dataclasses.dataclass(frozen=True)
class Incast(Flows):
    """All other ranks send to the first one, each its own `size_bytes`."""

    kind: ClassVar = "incast"

    @property
    def flow_count(self) -> int:
        return self.hosts - 1

    def sends_bytes(self, rank: int) -> int:
        return self.size_bytes if rank else 0

    def receives_bytes(self, rank: int) -> int:
        return 0 if rank else self.flow_count * self.size_bytes

    def flows(self) -> Iterator[Flow]:
        return (Flow(r, 0, 0, (r - 1) * self.size_bytes) for r in range(1, self.hosts))


@dataclasses.dataclass(frozen=True)
class Scatter(Flows):
    """The first rank sends to all others, each its own `size_bytes`."""

    kind: ClassVar = "scatter"

    @property
    def flow_count(self) -> int:
        return self.hosts - 1

    def sends_bytes(self, rank: int) -> int:
        return 0 if rank else self.flow_count * self.size_bytes

    def receives_bytes(self, rank: int) -> int:
        return self.size_bytes if rank else 0

    def flows(self) -> Iterator[Flow]:
        return (Flow(0, r, (r - 1) * self.size_bytes, 0) for r in range(1, self.hosts))


@dataclasses.dataclass(frozen=True)
class AllToAll(Flows):
    """Every rank sends `size_bytes` to each other one, its neighbour first.

    In the order of the distance, so that no two ranks begin with the same receiver.
    """

    kind: ClassVar = "all-to-all"

    @property
    def flow_count(self) -> int:
        return self.hosts * (self.hosts - 1)

    def sends_bytes(self, rank: int) -> int:
        return (self.hosts - 1) * self.size_bytes

    receives_bytes = sends_bytes

    def flows(self) -> Iterator[Flow]:
        for source in range(self.hosts):
            for distance in range(1, self.hosts):
                at = (distance - 1) * self.size_bytes
                yield Flow(source, (source + distance) % self.hosts, at, at)
