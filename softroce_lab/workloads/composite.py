# SPDX-License-Identifier: GPL-2.0-or-later
"""Workloads made of others: each part among some hosts, after what these have done before.

Every part has a region of its own in the buffer of each of its hosts, so nothing of one disturbs
another, and every byte in the end follows from the parts alone.

Parts are listed in an order in which they could be done one after the other. So, although two
hosts have one order of messages, no part waits for one that is behind it.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from softroce_lab.plan.effects import stream_key
from softroce_lab.workloads.message import ADD, Buffer, Message
from softroce_lab.workloads.schedule import Receive, Requires, Schedule, Vertex, copied
from softroce_lab.workloads.work import Buffered

After: TypeAlias = Mapping[int, Requires]
"""By host: its vertices that must be complete."""


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A workload at its places in the buffers of its hosts."""

    work: Buffered
    operation: int  # of its messages
    step: int
    offsets: Mapping[int, int]  # by host


class Writer:
    """Takes down what a composite does, without the graph: its parts and their places."""

    def __init__(self, ranks: Sequence[int], align_bytes: int) -> None:
        self.operation = 0  # of what comes next
        self.parts: list[Part] = []
        self.buffer_bytes = dict.fromkeys(ranks, 0)
        self.computed_ns: collections.Counter[tuple[int, int]] = collections.Counter()
        """By operation and host."""
        self._align_bytes = align_bytes

    def compute(self, host: int, duration_ns: int, after: Requires, *, at_ns: int = 0) -> Requires:
        """Let a host compute; what requires the result requires what is returned.

        It begins no earlier than `at_ns` after the run began.
        """
        self.computed_ns[self.operation, host] += duration_ns
        return ()

    def add(self, work: Buffered, step: int, after: After) -> After:
        """Let the hosts of `work` do it; what each must await that needs all that it brings.

        `step` is the one of all its messages. A host's own data are there after what `after` names.
        """
        self._place(work, step)
        return dict.fromkeys(work.ranks, ())

    def _place(self, work: Buffered, step: int) -> Part:
        part = Part(
            work, self.operation, step, {host: self.buffer_bytes[host] for host in work.ranks}
        )
        self.parts.append(part)
        for host in work.ranks:
            size_bytes = work.buffer_bytes_of(host)
            self.buffer_bytes[host] += size_bytes + -size_bytes % self._align_bytes
        return part


class _ScheduleWriter(Writer):
    """Writes the graph of all hosts."""

    def __init__(self, ranks: Sequence[int], align_bytes: int) -> None:
        super().__init__(ranks, align_bytes)
        self.schedule = Schedule(ranks)
        self._numbers: dict[tuple[int, int, int, int], int] = collections.defaultdict(int)

    def compute(self, host: int, duration_ns: int, after: Requires, *, at_ns: int = 0) -> Requires:
        super().compute(host, duration_ns, after)
        return (self.schedule.compute(host, duration_ns, after, at_ns=at_ns),)

    def add(self, work: Buffered, step: int, after: After) -> After:
        part = self._place(work, step)
        once = _schedule_of(work)
        moved = {id(each): self._moved(each, part) for each in once.messages}
        self.schedule.messages += moved.values()
        return {
            host: self._copy(host, once.of[host], moved, after.get(host, ())) for host in once.of
        }

    def _copy(
        self, host: int, vertices: Sequence[Vertex], moved: Mapping[int, Message], gate: Requires
    ) -> Requires:
        """Put a part's vertices behind those of the host."""
        whole = self.schedule.of[host]
        first, brought = len(whole), []
        for index, each in enumerate(vertices, first):
            requires = tuple(first + other for other in each.requires)
            if all(_is_free(vertices[other]) for other in each.requires):
                requires += gate
            irequires = tuple(first + other for other in each.irequires)
            if _is_free(each):
                requires = ()
            if isinstance(each, Receive):
                brought.append(index)
            whole.append(copied(each, moved, requires, irequires))
        return (self.schedule.compute(host, 0, (*brought, *gate)),) if brought else gate

    def _moved(self, message: Message, part: Part) -> Message:
        pair = (message.source, message.destination, part.operation, part.step)
        number = self._numbers[pair]
        self._numbers[pair] += 1
        return dataclasses.replace(
            message,
            key=(part.operation, part.step, number),
            source_offset=message.source_offset + part.offsets[message.source],
            destination_offset=message.destination_offset + part.offsets[message.destination],
        )


class Composite(Buffered):
    """A workload that is written part by part."""

    @abc.abstractmethod
    def write(self, to: Writer) -> None:
        """Write down all that is done, in an order in which it could be done."""

    @functools.cached_property
    def written(self) -> Writer:
        """The parts and their places; without messages."""
        writer = Writer(self.ranks, self.dtype.itemsize)
        self.write(writer)
        return writer

    @property
    def message_count(self) -> int:
        return sum(part.work.message_count for part in self.written.parts)

    @property
    def longest_message_bytes(self) -> int:
        return max(part.work.longest_message_bytes for part in self.written.parts)

    def buffer_bytes_of(self, host: int) -> int:
        return self.written.buffer_bytes.get(host, 0)

    def messages(self) -> Iterator[Message]:
        return iter(self.schedule().messages)

    def schedule(self) -> Schedule:
        """Made once, for several parts of a run ask for it."""
        return self._schedule

    @functools.cached_property
    def _schedule(self) -> Schedule:
        writer = _ScheduleWriter(self.ranks, self.dtype.itemsize)
        self.write(writer)
        return writer.schedule

    def initial(self, host: int, seed: int) -> Buffer:
        return self._joined(host, seed, lambda work, key: work.initial(host, key))

    def expected(self, host: int, seed: int) -> Buffer:
        return self._joined(host, seed, lambda work, key: work.expected(host, key))

    def _joined(self, host: int, seed: int, part: Callable[[Buffered, int], Buffer]) -> Buffer:
        """The regions of all parts; each part has a seed of its own."""
        joined = np.zeros(self.buffer_bytes_of(host), dtype=np.uint8)
        for number, each in enumerate(self.written.parts):
            if host in each.offsets:
                data = part(each.work, stream_key(seed, "part", number)).view(np.uint8)
                joined[each.offsets[host] :][: len(data)] = data
        return joined.view(self.dtype)


def _is_free(vertex: Vertex) -> bool:
    """Whether it may come before its host begins the part: it is stored in a region of its own."""
    return isinstance(vertex, Receive) and vertex.message.combine is not ADD and not vertex.requires


@functools.lru_cache(maxsize=256)
def _schedule_of(work: Buffered) -> Schedule:
    """Many parts are equal."""
    return work.schedule()
