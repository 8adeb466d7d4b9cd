# SPDX-License-Identifier: GPL-2.0-or-later
"""A workload several times over, at its times: iterations of a training, rounds of an incast."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping

import numpy as np

from softroce_lab.plan.effects import stream_key
from softroce_lab.workloads.message import MAX_OPERATIONS, Buffer, Message
from softroce_lab.workloads.schedule import Receive, Requires, Schedule, copied
from softroce_lab.workloads.streams import Stream
from softroce_lab.workloads.work import Buffered


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
    training. A host begins the next when it has received all that the one before brings
    it; what it passes on for others waits for what it passes on alone.
    """

    def __init__(
        self, once: Buffered, times: int = 1, timeline: Timeline | None = None, warm_up: int = 0
    ) -> None:
        """`times` counts the warm-up, too. ValueError for no operation after it, or over 2**16."""
        if not 1 <= times <= MAX_OPERATIONS:
            raise ValueError("a workload is done 1 to 65536 times")
        if not 0 <= warm_up < times:
            raise ValueError("at least one operation follows the warm-up")
        self.once, self.times, self.timeline = once, times, timeline or Timeline()
        self.warm_up = warm_up
        self.ranks, self.dtype = once.ranks, once.dtype

    @property
    def name(self) -> str:
        return self.once.name

    @property
    def message_count(self) -> int:
        return self.times * self.once.message_count

    @property
    def longest_message_bytes(self) -> int:
        return self.once.longest_message_bytes

    def buffer_bytes_of(self, host: int) -> int:
        return self.times * self.once.buffer_bytes_of(host)

    def messages(self) -> Iterator[Message]:
        for operation in range(self.times):
            offsets = self._offsets(operation)
            yield from (_moved(each, operation, offsets) for each in self.once.messages())

    def schedule(self) -> Schedule:
        """Made once, for several parts of a run ask for it."""
        return self._schedule

    @functools.cached_property
    def _schedule(self) -> Schedule:
        once = self.once.schedule()
        if self.times == 1 and not self.timeline.skew_ns:
            return once
        whole = Schedule(self.ranks)
        for operation in range(self.times):
            self._add(whole, once, operation)
        return whole

    def _add(self, whole: Schedule, once: Schedule, operation: int) -> None:
        offsets = self._offsets(operation)
        moved = {id(each): _moved(each, operation, offsets) for each in once.messages}
        whole.messages += moved.values()
        for host, vertices in once.of.items():
            begins_ns = self.timeline.begins_ns(operation, host)
            gate = self._gate(whole, host, len(vertices)) if operation else ()
            first = len(whole.of[host])
            for each in vertices:
                requires = tuple(first + index for index in each.requires) or gate
                irequires = tuple(first + index for index in each.irequires)
                if isinstance(each, Receive) and not each.requires:
                    requires = ()  # posted before the operation begins, as early as there is room
                whole.of[host].append(copied(each, moved, requires, irequires, begins_ns))

    def _gate(self, whole: Schedule, host: int, count: int) -> Requires:
        """What the vertices of an operation require that require nothing of its own."""
        end = len(whole.of[host])
        before = range(end - count, end)
        brought = tuple(index for index in before if isinstance(whole.of[host][index], Receive))
        return (whole.compute(host, 0, brought),) if brought else ()

    def _offsets(self, operation: int) -> Mapping[int, int]:
        return {host: operation * self.once.buffer_bytes_of(host) for host in self.ranks}

    def initial(self, host: int, seed: int) -> Buffer:
        return np.concatenate([self.once.initial(host, each) for each in self._seeds(seed)])

    def expected(self, host: int, seed: int) -> Buffer:
        return np.concatenate([self.once.expected(host, each) for each in self._seeds(seed)])

    def _seeds(self, seed: int) -> list[int]:
        return [stream_key(seed, "operation", number) for number in range(self.times)]


def _moved(message: Message, operation: int, offsets: Mapping[int, int]) -> Message:
    """The same message of another operation."""
    return Message(
        (operation, *message.key[1:]),
        message.source,
        message.destination,
        message.length_bytes,
        message.source_offset + offsets[message.source],
        message.destination_offset + offsets[message.destination],
        message.combine,
        message.volatile,
    )
