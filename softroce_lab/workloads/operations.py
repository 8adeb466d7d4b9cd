# SPDX-License-Identifier: GPL-2.0-or-later
"""A workload several times over, at its times: iterations of a training, rounds of an incast."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Iterator, Mapping

import numpy as np

from softroce_lab.plan.effects import stream_key
from softroce_lab.recovery.api import Key
from softroce_lab.workloads.streams import Stream
from softroce_lab.workloads.work import MAX_OPERATIONS, Awaited, Buffer, Buffered, Message


@dataclasses.dataclass(frozen=True)
class Timeline:
    """When operations begin. Times in ns."""

    every_ns: int = 0  # the n-th operation not before n times this
    skew_ns: int = 0  # each host begins each operation up to this later, drawn from `seed`
    seed: int = 0

    def begins_ns(self, operation: int, host: int) -> int:
        """When a host begins an operation, at the earliest."""
        late = stream_key(self.seed, "skew", operation, host) if self.skew_ns else 0
        return operation * self.every_ns + Stream(late).below(self.skew_ns + 1)


class Operations(Buffered):
    """`times` operations, each on a part of the buffer of its own.

    So nothing of one can disturb another, as with the buckets of gradients in data-parallel
    training. A host begins the next when it has received all that the one before brings it.
    """

    def __init__(self, once: Buffered, times: int = 1, timeline: Timeline | None = None) -> None:
        """ValueError for fewer than one operation, or more than 2**16."""
        if not 1 <= times <= MAX_OPERATIONS:
            raise ValueError("a workload is done 1 to 65536 times")
        self.once, self.times, self.timeline = once, times, timeline or Timeline()
        self.ranks, self.dtype = once.ranks, once.dtype

    @property
    def name(self) -> str:  # noqa: D102
        return self.once.name

    @property
    def message_count(self) -> int:  # noqa: D102
        return self.times * self.once.message_count

    def buffer_bytes_of(self, host: int) -> int:  # noqa: D102
        return self.times * self.once.buffer_bytes_of(host)

    def messages(self) -> Iterator[Message]:  # noqa: D102
        return iter(self._messages)

    @functools.cached_property
    def _messages(self) -> tuple[Message, ...]:
        """Made once: there is one object a message, whoever walks over them, and however often."""
        return tuple(self._made())

    def _made(self) -> Iterator[Message]:
        if self.times == 1 and not self.timeline.skew_ns:
            yield from self.once.messages()
            return
        brought: dict[int, list[tuple[int, Key]]] = collections.defaultdict(list)
        for message in self.once.messages():
            brought[message.destination].append((message.source, message.key))
        for operation in range(self.times):
            # One tuple a host, shared by all messages that wait for it.
            gates = {
                host: _of(operation - 1, brought[host]) if operation else () for host in self.ranks
            }
            yield from self._operation(operation, gates)

    def _operation(self, operation: int, gates: Mapping[int, Awaited]) -> Iterator[Message]:
        begins = {host: self.timeline.begins_ns(operation, host) for host in self.ranks}
        offsets = {host: operation * self.once.buffer_bytes_of(host) for host in self.ranks}
        for message in self.once.messages():
            source, destination = message.source, message.destination
            yield Message(
                (operation, *message.key[1:]),
                source,
                destination,
                message.length_bytes,
                message.source_offset + offsets[source],
                message.destination_offset + offsets[destination],
                message.combine,
                _of(operation, message.after) if message.after else gates[source],
                message.at_ns + begins[source],
            )

    def initial(self, host: int, seed: int) -> Buffer:  # noqa: D102
        return np.concatenate([self.once.initial(host, each) for each in self._seeds(seed)])

    def expected(self, host: int, seed: int) -> Buffer:  # noqa: D102
        return np.concatenate([self.once.expected(host, each) for each in self._seeds(seed)])

    def _seeds(self, seed: int) -> list[int]:
        return [stream_key(seed, "operation", number) for number in range(self.times)]


def _of(operation: int, awaited: Awaited | list[tuple[int, Key]]) -> Awaited:
    return tuple((source, (operation, *key[1:])) for source, key in awaited)
