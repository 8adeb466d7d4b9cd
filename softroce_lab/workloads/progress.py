# SPDX-License-Identifier: GPL-2.0-or-later
"""One host's progress through its graph: what to post now, given what has completed.

To each peer a host keeps `depth` sends outstanding at most, in the order of the schedule, and of
each peer twice as many receives posted: so the receive is there before its message begins, for
what a sender may post next is among the first `depth` messages that it has not seen completed.

A failure is the end of a pair, not of the run: nothing more is sent to that peer, or awaited of it,
and what requires what failed never starts. Others go on.
"""

from __future__ import annotations

import abc
import collections
import heapq
from collections.abc import Sequence
from typing import cast

from softroce_lab.transports.api import NEVER_NS
from softroce_lab.workloads.message import Message
from softroce_lab.workloads.schedule import Compute, Receive, Send, Vertex

DEPTH = 4  # sends outstanding to a peer, unless the experiment sets another


class _Processor:
    """Computes one vertex after the other, in the order in which they became ready."""

    __slots__ = ("busy", "queue")

    def __init__(self) -> None:
        self.busy = False
        self.queue: collections.deque[int] = collections.deque()


class HostWork(abc.ABC):
    """What one host has to do. Told what has ended, it asks for what comes next.

    `number` calls a send or a receive by its vertex. How it is done is another class's.
    """

    def __init__(self, vertices: Sequence[Vertex], depth: int = DEPTH) -> None:
        self._vertices = vertices
        self._depth = depth
        self._missing = [_requirements(each) for each in vertices]
        self._on_complete: dict[int, list[int]] = {}  # vertex -> those that require it
        self._on_start: dict[int, list[int]] = {}
        self._sends: dict[int, collections.deque[int]] = {}  # by peer: not yet posted
        self._receives: dict[int, collections.deque[int]] = {}
        self._sort()
        self._left = sum(map(len, (*self._sends.values(), *self._receives.values())))
        self._computes_left = len(vertices) - self._left
        self._sending: dict[int, set[int]] = {peer: set() for peer in self._sends}
        self._receiving: dict[int, set[int]] = {peer: set() for peer in self._receives}
        self._early: set[int] = set()  # receives that arrived before what they require
        self._followers: collections.deque[int] = _queue()  # one requirement less each
        self._freed: set[int] = set()  # peers, a send to whom waits for nothing any more
        self._due: list[tuple[int, int]] = []  # heap of (at_ns, peer)
        self._alarms: list[tuple[int, int]] = []  # heap of (at_ns, computation): it begins, or ends
        self._running: set[int] = set()  # computations
        self._processors: dict[int, _Processor] = collections.defaultdict(_Processor)
        self._now_ns = 0
        self._outstanding_sends = 0
        self.failed = False  # whether a message failed

    def _sort(self) -> None:
        for index, vertex in enumerate(self._vertices):
            if isinstance(vertex, Send):
                self._sends.setdefault(vertex.message.destination, _queue()).append(index)
            elif isinstance(vertex, Receive):
                self._receives.setdefault(vertex.message.source, _queue()).append(index)
            for required in vertex.requires:
                self._on_complete.setdefault(required, []).append(index)
            for required in vertex.irequires:
                self._on_start.setdefault(required, []).append(index)

    # ---------------------------------------------------------------- how far it is

    @property
    def finished(self) -> bool:
        """Whether everything is done: complete, failed, or given up behind a failure."""
        return self._left == 0 and self._computes_left == 0

    @property
    def quiet(self) -> bool:
        """Whether it will send nothing more, unless something arrives.

        When all hosts are quiet and nothing is on its way, no receive will complete any more.
        """
        return self._outstanding_sends == 0 and not self._due and not self._alarms

    @property
    def next_at_ns(self) -> int:
        """When `on_time` has something to do; NEVER_NS: nothing waits for a time."""
        due_ns = self._due[0][0] if self._due else NEVER_NS
        return min(due_ns, self._alarms[0][0]) if self._alarms else due_ns

    @property
    def waits_for_time(self) -> bool:
        """Whether it has something to do at a later time, whatever others do."""
        return self.next_at_ns != NEVER_NS

    @property
    def left(self) -> int:
        """Sends and receives that are not over."""
        return self._left

    # ---------------------------------------------------------------- what it asks for

    @abc.abstractmethod
    def send(self, number: int, message: Message) -> None:
        """Post a send."""

    @abc.abstractmethod
    def receive(self, number: int, message: Message) -> None:
        """Post a receive."""

    @abc.abstractmethod
    def keep(self, message: Message) -> None:
        """Keep the bytes of a message that arrived before what its receive requires."""

    @abc.abstractmethod
    def combine(self, message: Message) -> None:
        """Do with the bytes of a message, which arrived now or was kept, what it asks for."""

    # ---------------------------------------------------------------- what happens

    def prepare(self) -> None:
        """Post the first receives, before any host begins."""
        for peer in self._receives:
            self._post_receives(peer)

    def begin(self, now_ns: int = 0) -> None:
        """The run begins."""
        self._now_ns = now_ns
        for index, vertex in enumerate(self._vertices):
            if not isinstance(vertex, Send) and not _requirements(vertex):
                self._enable(index)
        for peer in self._sends:
            self._post_sends(peer)
        self._follow()

    def on_time(self, now_ns: int) -> None:
        """It is later now: computations end, and sends that waited for their time are posted."""
        self._now_ns = max(self._now_ns, now_ns)
        while self._due and self._due[0][0] <= self._now_ns:
            self._freed.add(heapq.heappop(self._due)[1])
        while self._alarms and self._alarms[0][0] <= self._now_ns:
            index = heapq.heappop(self._alarms)[1]
            if index in self._running:
                self._end_compute(index)
            else:
                self._begin_compute(index)
        self._follow()

    def on_sent(self, number: int, now_ns: int = 0) -> None:
        """A send completed. KeyError if it was not outstanding."""
        self._now_ns = max(self._now_ns, now_ns)
        peer = self._end_send(number)
        self._complete(number)
        self._post_sends(peer)
        self._follow()

    def on_received(self, number: int, now_ns: int = 0) -> None:
        """A message arrived. KeyError if it was not awaited."""
        self._now_ns = max(self._now_ns, now_ns)
        message = self._message(number)
        self._receiving[message.source].remove(number)
        if self._missing[number]:
            self._early.add(number)
            self.keep(message)
        else:
            self._end_receive(number)
        self._post_receives(message.source)
        self._follow()

    def on_send_failed(self, number: int) -> None:
        """A send completed in error: nothing more goes to this peer."""
        self.failed = True
        peer = self._end_send(number)
        self._left -= len(self._sends[peer])
        self._sends[peer].clear()

    def on_receive_failed(self, number: int) -> None:
        """A receive completed in error: nothing more is awaited of this peer."""
        self.failed = True
        peer = self._message(number).source
        self._receiving[peer].remove(number)
        self._left -= 1 + len(self._receives[peer])
        self._receives[peer].clear()

    def _follow(self) -> None:
        """Do what follows from all that completed or started."""
        while self._followers or self._freed:
            while self._followers:
                self._satisfy(self._followers.popleft())
            freed, self._freed = self._freed, set()
            left = (peer for peer in freed if self._sends[peer])  # in the schedule's order
            for peer in sorted(left, key=lambda peer: self._sends[peer][0]):
                self._post_sends(peer)

    # ---------------------------------------------------------------- the graph

    def _message(self, index: int) -> Message:
        return cast("Send | Receive", self._vertices[index]).message

    def _complete(self, index: int) -> None:
        self._followers.extend(self._on_complete.pop(index, ()))

    def _start(self, index: int) -> None:
        self._followers.extend(self._on_start.pop(index, ()))

    def _satisfy(self, index: int) -> None:
        self._missing[index] -= 1
        if not self._missing[index]:
            self._enable(index)

    def _enable(self, index: int) -> None:
        """All that a vertex requires is there."""
        vertex = self._vertices[index]
        if isinstance(vertex, Send):
            self._freed.add(vertex.message.destination)
            return
        if isinstance(vertex, Compute):
            self._begin_compute(index)
            return
        self._start(index)
        if index in self._early:
            self._early.remove(index)
            self._end_receive(index)

    def _end_receive(self, index: int) -> None:
        self._left -= 1
        self.combine(self._message(index))
        self._complete(index)

    def _end_send(self, index: int) -> int:
        """The peer."""
        peer = self._message(index).destination
        self._sending[peer].remove(index)
        self._outstanding_sends -= 1
        self._left -= 1
        return peer

    # ---------------------------------------------------------------- computations

    def _begin_compute(self, index: int) -> None:
        vertex = cast("Compute", self._vertices[index])
        if vertex.at_ns > self._now_ns:
            heapq.heappush(self._alarms, (vertex.at_ns, index))
        elif not vertex.duration_ns:
            self._computes_left -= 1
            self._start(index)
            self._complete(index)
        else:
            processor = self._processors[vertex.cpu]
            processor.queue.append(index)
            self._next_compute(processor)

    def _next_compute(self, processor: _Processor) -> None:
        if processor.busy or not processor.queue:
            return
        index = processor.queue.popleft()
        vertex = cast("Compute", self._vertices[index])
        processor.busy = True
        self._running.add(index)
        heapq.heappush(self._alarms, (self._now_ns + vertex.duration_ns, index))
        self._start(index)

    def _end_compute(self, index: int) -> None:
        vertex = cast("Compute", self._vertices[index])
        self._running.remove(index)
        self._computes_left -= 1
        processor = self._processors[vertex.cpu]
        processor.busy = False
        self._complete(index)
        self._next_compute(processor)

    # ---------------------------------------------------------------- what to post

    def _post_receives(self, peer: int) -> None:
        queue, posted = self._receives[peer], self._receiving[peer]
        while queue and len(posted) < 2 * self._depth:
            index = queue.popleft()
            posted.add(index)
            self.receive(index, self._message(index))

    def _post_sends(self, peer: int) -> None:
        """Those that may be posted now, in order; the time that the next one waits for is kept."""
        queue, posted = self._sends[peer], self._sending[peer]
        while queue and len(posted) < self._depth and not self._waits(queue[0], peer):
            index = queue.popleft()
            posted.add(index)
            self._outstanding_sends += 1
            self.send(index, self._message(index))
            self._start(index)

    def _waits(self, index: int, peer: int) -> bool:
        if self._missing[index]:
            return True
        vertex = cast("Send", self._vertices[index])
        if vertex.at_ns > self._now_ns:
            if (vertex.at_ns, peer) not in self._due:
                heapq.heappush(self._due, (vertex.at_ns, peer))
            return True
        return False


def _queue() -> collections.deque[int]:
    return collections.deque()


def _requirements(vertex: Vertex) -> int:
    return len(vertex.requires) + len(vertex.irequires)
