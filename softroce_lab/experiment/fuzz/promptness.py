# SPDX-License-Identifier: GPL-2.0-or-later
"""Every send is posted at the first moment at which it may be, to the nanosecond.

By other code than the hosts', and from what a run shows: when sends were posted and acknowledged
and when messages arrived. Computations are not recorded, so they are worked out. Which of two that
become ready at one moment is first depends on the order of events there: what follows from the two
is left out.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias, cast

from softroce_lab.workloads.schedule import Compute, Receive, Send, Vertex

Name: TypeAlias = tuple[int, int, int, int, int]  # source, destination and the key's three parts
Times: TypeAlias = tuple[float, float, float]  # posted, acknowledged, there


@dataclasses.dataclass(slots=True)
class _Moment:
    """When a vertex begins or ends; not `sure` if it may be another time."""

    ns: float
    sure: bool = True

    def later(self, other: _Moment) -> _Moment:
        return _Moment(max(self.ns, other.ns), self.sure and other.sure)


@dataclasses.dataclass(slots=True)
class _Processor:
    """Computes one vertex after the other, in the order in which they become ready."""

    free_ns: float = 0.0
    sure: bool = True
    ready_ns: float = -1.0  # of the newest
    tied: bool = False  # several that became ready then


def late(vertices: Sequence[Vertex], rows: Mapping[Name, Times], depth: int) -> Iterator[str]:
    """The first send of a host that was posted later than it might have been.

    `rows`: of each message when it was posted, acknowledged and there, in ns; `depth`: sends that
    may be outstanding to a peer.
    """
    ready = _Replay(vertices, rows).ready()
    queues: dict[int, list[int]] = collections.defaultdict(list)
    for index, vertex in enumerate(vertices):
        if isinstance(vertex, Send):
            queues[vertex.message.destination].append(index)
    for queue in queues.values():
        before_ns = 0.0
        acknowledged: list[float] = []
        for number, index in enumerate(queue):
            vertex = cast("Send", vertices[index])
            posted_ns, acknowledged_ns, _ = rows[_name(vertex)]
            free_ns = acknowledged[number - depth] if number >= depth else 0.0
            may_ns = max(ready[index].ns, vertex.at_ns, before_ns, free_ns)
            if ready[index].sure and posted_ns > may_ns:
                key = "/".join(map(str, vertex.message.key))
                yield f"message {key} {posted_ns - may_ns:.0f} ns after it might have been"
                return
            before_ns = posted_ns
            acknowledged = _inserted(acknowledged, acknowledged_ns)


def _inserted(ascending: list[float], value: float) -> list[float]:
    at = len(ascending)
    while at and ascending[at - 1] > value:
        at -= 1
    ascending.insert(at, value)
    return ascending


def _name(vertex: Send | Receive) -> Name:
    message = vertex.message
    first, second, third = message.key
    return message.source, message.destination, first, second, third


class _Replay:
    """A host's graph, carried out with the times of the run."""

    def __init__(self, vertices: Sequence[Vertex], rows: Mapping[Name, Times]) -> None:
        self._vertices, self._rows = vertices, rows
        self._missing = [len(each.requires) + len(each.irequires) for each in vertices]
        self._ready = [_Moment(0.0) for _ in vertices]
        self._after: dict[int, list[tuple[int, bool]]] = collections.defaultdict(list)
        for index, each in enumerate(vertices):
            for required in each.requires:
                self._after[required].append((index, True))
            for required in each.irequires:
                self._after[required].append((index, False))
        self._processors: dict[int, _Processor] = collections.defaultdict(_Processor)
        self._waiting: list[tuple[float, bool, int]] = []  # heap: when it is ready, not a root

    def ready(self) -> list[_Moment]:
        """When all that each vertex requires is there."""
        for index in [index for index, count in enumerate(self._missing) if not count]:
            self._take(index, root=True)
        while self._waiting:
            _, later, index = heapq.heappop(self._waiting)
            self._compute(index, root=not later)
        return self._ready

    def _take(self, index: int, *, root: bool = False) -> None:
        """All moments that it requires are known; those of computations in the order of time."""
        vertex, ready = self._vertices[index], self._ready[index]
        if isinstance(vertex, Compute):
            ready.ns = max(ready.ns, vertex.at_ns)
            if vertex.duration_ns:
                heapq.heappush(self._waiting, (ready.ns, not root or vertex.at_ns > 0, index))
            else:
                self._known(index, ready, ready)
            return
        posted_ns, acknowledged_ns, there_ns = self._rows[_name(vertex)]
        if isinstance(vertex, Send):
            self._known(index, _Moment(posted_ns), _Moment(acknowledged_ns))
        else:
            self._known(index, ready, ready.later(_Moment(there_ns)))

    def _compute(self, index: int, *, root: bool) -> None:
        vertex, ready = cast("Compute", self._vertices[index]), self._ready[index]
        on = self._processors[vertex.cpu]
        waiting = [other for _, _, other in self._waiting]
        tied = not root and any(
            self._cpu(other) == vertex.cpu and self._ready[other].ns == ready.ns
            for other in waiting
        )
        on.tied = tied or (on.tied and on.ready_ns == ready.ns)
        on.ready_ns = ready.ns
        # What is ready at a time that is not sure may have come before.
        on.sure = on.sure and all(self._ready[each].sure for each in (index, *waiting))
        begin_ns = max(ready.ns, on.free_ns)
        on.free_ns = begin_ns + vertex.duration_ns
        sure = on.sure and not on.tied
        self._known(index, _Moment(begin_ns, sure), _Moment(on.free_ns, sure))

    def _cpu(self, index: int) -> int:
        return cast("Compute", self._vertices[index]).cpu

    def _known(self, index: int, begin: _Moment, end: _Moment) -> None:
        for follower, ended in self._after.pop(index, ()):
            self._ready[follower] = self._ready[follower].later(end if ended else begin)
            self._missing[follower] -= 1
            if not self._missing[follower]:
                self._take(follower)


def all_arrived(rows: Mapping[Name, Times]) -> bool:
    """Whether every message was acknowledged and is there."""
    return not any(math.inf in times for times in rows.values())
