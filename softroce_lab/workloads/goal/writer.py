# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes a workload as a GOAL file.

The halves of a tag are a message's operation and step. GOAL has no time of day: what must not
start before a time requires a computation that ends then, on a processor of its own (a clock).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from softroce_lab.workloads.message import Message
from softroce_lab.workloads.schedule import Compute, Receive, Send, Vertex
from softroce_lab.workloads.work import Workload


def lines(workload: Workload, about: Sequence[str] = ()) -> Iterator[str]:
    """The lines of the file; those of `about` are comments at its beginning."""
    yield from (f"// {line}" for line in about)
    yield f"num_ranks {workload.hosts}"
    schedule = workload.schedule()
    rank_of = {host: rank for rank, host in enumerate(workload.ranks)}
    for rank, host in enumerate(workload.ranks):
        yield ""
        yield f"rank {rank} {{"
        yield from _rank(schedule.of[host], rank_of)
        yield "}"


def _rank(vertices: Sequence[Vertex], rank_of: Mapping[int, int]) -> Iterator[str]:
    """Its operations first, then what they require: that may be one further down."""
    clock = _Clock(vertices)
    for number, vertex in enumerate(vertices, 1):
        match vertex:
            case Send(message):
                ends = f"to {rank_of[message.destination]} tag {_tag(message)}"
                yield f"l{number}: send {message.length_bytes}b {ends}"
            case Receive(message):
                ends = f"from {rank_of[message.source]} tag {_tag(message)}"
                yield f"l{number}: recv {message.length_bytes}b {ends}"
            case Compute(duration_ns, cpu=cpu):
                yield f"l{number}: calc {duration_ns}" + (f" cpu {cpu}" if cpu else "")
    yield from clock.operations()
    for number, vertex in enumerate(vertices, 1):
        yield from (f"l{number} requires l{each + 1}" for each in vertex.requires)
        yield from (f"l{number} irequires l{each + 1}" for each in vertex.irequires)
        if at_ns := _at_ns(vertex):
            yield f"l{number} requires {clock.label(at_ns)}"


def _at_ns(vertex: Vertex) -> int:
    return 0 if isinstance(vertex, Receive) else vertex.at_ns


def _tag(message: Message) -> int:
    operation, step, _ = message.key
    return operation << 16 | step


class _Clock:
    """Computations that end at the times that a rank's operations wait for."""

    def __init__(self, vertices: Sequence[Vertex]) -> None:
        self._times_ns = sorted({0, *map(_at_ns, vertices)})
        self._number = {at_ns: number for number, at_ns in enumerate(self._times_ns)}
        used = (each.cpu for each in vertices if isinstance(each, Compute))
        self._cpu = 1 + max(used, default=0)

    def label(self, at_ns: int) -> str:
        """Of the computation that ends then."""
        return f"t{self._number[at_ns]}"

    def operations(self) -> Iterator[str]:
        """One behind the other."""
        for before_ns, at_ns in itertools.pairwise(self._times_ns):
            yield f"{self.label(at_ns)}: calc {at_ns - before_ns} cpu {self._cpu}"
            if before_ns:
                yield f"{self.label(at_ns)} requires {self.label(before_ns)}"
