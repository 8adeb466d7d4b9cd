# SPDX-License-Identifier: GPL-2.0-or-later
"""Which sends of a host are followed by others, and which are the last of their step.

A send is *followed* if the host will post another one without waiting for a message to arrive, or
for a time of the workload (`at_ns`). The other one may wait for its turn (`depth`), for sends of
the host to complete, or for computations. After the last send of a step the host waits for others,
and its port idles.

A vertex is *certain* if all that it requires, and each send before it to the same host, is certain.
A receive that is required is certain once it is over, a computation with a time once that has come.
So a certain send is posted whatever else arrives. A vertex becomes certain once, so all marks of a
run cost as much as a walk of the graph.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from softroce_lab.workloads.schedule import Compute, Send, Vertex

Marks: TypeAlias = Literal["workload", "every", "none"]
"""Which sends are marked as the last of their step: those of the workload, or, wrongly, every send
or none."""

_Followers: TypeAlias = Mapping[int, Sequence[int]]


class Following:
    """Counts the sends of a host that are certain and not posted."""

    def __init__(
        self,
        vertices: Sequence[Vertex],
        on_complete: _Followers,
        on_start: _Followers,
        sends: Mapping[int, Sequence[int]],
    ) -> None:
        """`on_complete`, `on_start`: who requires a vertex; `sends`: in order, by peer."""
        self._vertices = vertices
        self._on_complete = on_complete
        self._on_start = on_start
        self._next_send = [-1] * len(vertices)  # to the same peer; -1: none
        self._at_ns: dict[int, int] = {}  # of sends that wait for a time, or for one that does
        self._uncertain = [len(each.requires) + len(each.irequires) for each in vertices]
        for queue in sends.values():
            self._chain(queue)
        self._ready = 0  # certain sends whose time has come, and that are not posted
        self._later: list[int] = []  # heap: times of the other certain sends
        certain = [index for index, left in enumerate(self._uncertain) if not left]
        for index in certain:
            self._uncertain[index] = 1
        self._settle(certain)

    def _chain(self, queue: Sequence[int]) -> None:
        at_ns, before = 0, -1
        for index in queue:
            vertex = self._vertices[index]
            at_ns = max(at_ns, vertex.at_ns if isinstance(vertex, Send) else 0)
            if at_ns:
                self._at_ns[index] = at_ns
            if before >= 0:
                self._next_send[before] = index
                self._uncertain[index] += 1
            before = index

    def received(self, index: int) -> None:
        """A receive is over."""
        self._settle(self._on_complete.get(index, ()))

    def timed_computation(self, index: int) -> None:
        """The time of a computation has come."""
        self._settle(self._on_start.get(index, ()))
        self._settle(self._on_complete.get(index, ()))

    def posted(self, now_ns: int) -> bool:
        """A send is posted: whether it is followed.

        Sends of a later time do not count: nobody has asked for them yet.
        """
        while self._later and self._later[0] <= now_ns:
            heapq.heappop(self._later)
            self._ready += 1
        self._ready -= 1
        return self._ready > 0

    def given_up(self, queue: Sequence[int], now_ns: int) -> None:
        """Sends that will not be posted. Those of a later time still count then."""
        self._ready -= sum(
            not self._uncertain[index] and self._at_ns.get(index, 0) <= now_ns for index in queue
        )

    def _settle(self, reached: Sequence[int]) -> None:
        """Something that each of these requires is certain: what follows from that."""
        left = list(reached)
        while left:
            index = left.pop()
            self._uncertain[index] -= 1
            if self._uncertain[index]:
                continue
            vertex = self._vertices[index]
            is_send = isinstance(vertex, Send)
            if isinstance(vertex, Compute) and vertex.at_ns:
                continue
            left += self._on_start.get(index, ())
            if is_send or isinstance(vertex, Compute):
                left += self._on_complete.get(index, ())
            if is_send:
                self._count(index)
                if self._next_send[index] >= 0:
                    left.append(self._next_send[index])

    def _count(self, send: int) -> None:
        """It is certain."""
        if send in self._at_ns:
            heapq.heappush(self._later, self._at_ns[send])
        else:
            self._ready += 1
