# SPDX-License-Identifier: GPL-2.0-or-later
"""The critical path of a run: the messages and computations that its end waited for, one by one.

From the last completion backwards: a send was posted when the last of what it requires was over.
That is a message that arrived, a send that was acknowledged, or a computation. Where a send waited
for another to its peer to make room, that one is on the path. The pieces of the path follow each
other without a gap, so their lengths add up to the whole.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from softroce_lab.experiment.messages import Messages
from softroce_lab.workloads.schedule import Compute, Receive, Schedule, Send, Vertex

NO_MESSAGE = -1


class Piece(NamedTuple):
    """A piece of the path."""

    kind: str  # "message", "acknowledged message", "computing", "waiting"
    host: int  # that waits or computes; of a message its sender
    row: int  # of the message; NO_MESSAGE
    begin_ns: int
    end_ns: int


class _At(NamedTuple):
    """A vertex: of this host, with this index."""

    host: int
    vertex: int


@dataclasses.dataclass(slots=True)
class Graph:
    """A schedule, and where each message stands in it."""

    of: dict[int, list[Vertex]]
    send_of: dict[int, _At]  # by row of the message
    row_of: dict[_At, int]  # of sends and receives
    before: dict[int, tuple[int, ...]]  # rows of earlier sends to the same peer, the last first

    @classmethod
    def of_schedule(cls, schedule: Schedule) -> Graph:
        """Rows are the order of its messages."""
        rows = {
            (each.source, each.destination, each.key): row
            for row, each in enumerate(schedule.messages)
        }
        send_of, row_of = {}, {}
        before: dict[int, tuple[int, ...]] = {}
        for host, vertices in schedule.of.items():
            earlier: dict[int, collections.deque[int]] = {}
            for index, each in enumerate(vertices):
                if isinstance(each, Compute):
                    continue
                message = each.message
                row = rows[message.source, message.destination, message.key]
                row_of[_At(host, index)] = row
                if isinstance(each, Send):
                    send_of[row] = _At(host, index)
                    past = earlier.setdefault(message.destination, collections.deque(maxlen=64))
                    before[row] = tuple(past)
                    past.appendleft(row)
        return cls(dict(schedule.of), send_of, row_of, before)


def critical_path(graph: Graph, messages: Messages, last: int) -> list[Piece]:
    """The pieces up to the completion of the message in row `last`, in the order of time."""
    walk = _Walk(graph, messages)
    pieces = list(walk.back(last))
    pieces.reverse()
    return pieces


class _Walk:
    def __init__(self, graph: Graph, messages: Messages) -> None:
        self._graph = graph
        self._posted = messages["posted_ns"]
        self._received = messages["received_ns"]
        self._completed = messages["completed_ns"]
        self._begin_ns = int(messages["posted_ns"].min())
        self._ends: dict[_At, int] = {}  # of computations, and of receives that wait for more

    def back(self, last: int) -> Iterator[Piece]:
        at: _At | None = self._graph.send_of[last]
        end_ns = int(self._completed[last])
        while at is not None:
            vertex = self._graph.of[at.host][at.vertex]
            if isinstance(vertex, Compute):
                begin_ns = max(self._begin_ns, end_ns - vertex.duration_ns)
                if begin_ns < end_ns:
                    yield Piece("computing", at.host, NO_MESSAGE, begin_ns, end_ns)
            elif isinstance(vertex, Receive) and (later := self._later(at, vertex)) is not None:
                at = later  # it had arrived, and waited for another
                continue
            else:
                row = self._graph.row_of[at]
                at = self._graph.send_of[row]
                begin_ns = int(self._posted[row])
                received = isinstance(vertex, Receive)
                kind = "message" if received else "acknowledged message"
                yield Piece(kind, at.host, row, begin_ns, end_ns)
            cause, caused_ns = self._cause(at, begin_ns)
            if caused_ns < begin_ns:
                yield Piece("waiting", at.host, NO_MESSAGE, caused_ns, begin_ns)
            at, end_ns = cause, caused_ns

    def _later(self, at: _At, receive: Receive) -> _At | None:
        """What a receive requires that ended after its message had arrived."""
        needs = [_At(at.host, each) for each in receive.requires]
        if not needs:
            return None
        latest = max(needs, key=self._end)
        arrived = int(self._received[self._graph.row_of[at]])
        return latest if self._end(latest) > arrived else None

    def _cause(self, at: _At, by_ns: int) -> tuple[_At | None, int]:
        """What ended last before this vertex began, and when; (None, the begin of the run)."""
        vertex = self._graph.of[at.host][at.vertex]
        found: list[tuple[int, _At]] = [
            (self._end(_At(at.host, each)), _At(at.host, each)) for each in vertex.requires
        ]
        found += [
            (self._start(_At(at.host, each)), _At(at.host, each)) for each in vertex.irequires
        ]
        if isinstance(vertex, Send):
            rows = self._graph.before[self._graph.row_of[at]]
            found += [(int(self._completed[row]), self._graph.send_of[row]) for row in rows]
            found += [(int(self._posted[row]), self._graph.send_of[row]) for row in rows[:1]]
        in_time = [(end_ns, each) for end_ns, each in found if self._begin_ns < end_ns <= by_ns]
        if not in_time:
            return None, self._begin_ns
        end_ns, cause = max(in_time)
        return cause, end_ns

    def _start(self, at: _At) -> int:
        vertex = self._graph.of[at.host][at.vertex]
        if isinstance(vertex, Send):
            return int(self._posted[self._graph.row_of[at]])
        return self._end(at) - (vertex.duration_ns if isinstance(vertex, Compute) else 0)

    def _end(self, at: _At) -> int:
        """When a vertex was over. A computation's is a bound: its processor may have been busy."""
        waiting = [at]
        while waiting:
            each = waiting[-1]
            if each in self._ends:
                waiting.pop()
                continue
            vertex = self._graph.of[each.host][each.vertex]
            if isinstance(vertex, Send):
                self._ends[each] = int(self._completed[self._graph.row_of[each]])
                continue
            needs = [_At(each.host, need) for need in vertex.requires]
            missing = [need for need in needs if need not in self._ends]
            if missing:
                waiting += missing
                continue
            own_ns = self._begin_ns
            if isinstance(vertex, Receive):
                own_ns = int(self._received[self._graph.row_of[each]])
            ends = [own_ns, *(self._ends[need] for need in needs)]
            work_ns = vertex.duration_ns if isinstance(vertex, Compute) else 0
            if isinstance(vertex, Compute):
                ends.append(vertex.at_ns)
            self._ends[each] = max(ends) + work_ns
        return self._ends[at]


def last_of(messages: Messages, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    """The row, of these, whose message completed last."""
    return int(rows[np.argmax(messages["completed_ns"][rows])])
