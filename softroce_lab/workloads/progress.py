# SPDX-License-Identifier: GPL-2.0-or-later
"""One host's progress through its work: what to post now, given what has completed.

To each peer a host keeps `depth` sends outstanding at most, in the order of the workload, and of
each peer twice as many receives posted: so the receive is there before its message begins, for
what a sender may post next is among the first `depth` messages that it has not seen completed.

A failure is the end of a pair, not of the run: nothing more is sent to that peer, or awaited of it,
and what waits for what failed is never sent. Others go on.
"""

from __future__ import annotations

import collections
import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from softroce_lab.recovery.api import NEVER_NS, Key
from softroce_lab.workloads.work import Message, Workload, by_host

DEPTH = 4  # sends outstanding to a peer, unless the experiment says otherwise


class Posts(NamedTuple):
    """What to post now: first the receives, then the sends, each in its order."""

    receives: list[Message]
    sends: list[Message]


class _Gate:
    """Receives that several messages wait for together."""

    __slots__ = ("missing", "waiting")

    def __init__(self, missing: int) -> None:
        self.missing = missing
        self.waiting: list[int] = []  # peers whose next send waits


class HostWork:
    """What one host has to send and to receive. Driven by calls; each says what to post next."""

    def __init__(
        self, sends: Iterable[Message], receives: Iterable[Message], depth: int = DEPTH
    ) -> None:
        self._depth = depth
        self._sends = _by_peer((message.destination, message) for message in sends)
        self._receives = _by_peer((message.source, message) for message in receives)
        self._sending: dict[int, set[Key]] = {peer: set() for peer in self._sends}
        self._receiving: dict[int, set[Key]] = {peer: set() for peer in self._receives}
        self._gates: dict[int, _Gate] = {}  # by the identity of the tuple `after`, which is shared
        self._opens: dict[tuple[int, Key], list[_Gate]] = collections.defaultdict(list)
        self._due: list[tuple[int, int]] = []  # heap of (at_ns, peer)
        self._now_ns = 0
        self._left = sum(map(len, (*self._sends.values(), *self._receives.values())))
        self._outstanding_sends = 0
        self.failures: list[tuple[int, Key]] = []  # (peer, key)
        for queue in self._sends.values():
            for message in queue:
                self._watch(message)

    def _watch(self, message: Message) -> None:
        if not message.after or id(message.after) in self._gates:
            return
        gate = self._gates[id(message.after)] = _Gate(len(message.after))
        for awaited in message.after:
            self._opens[awaited].append(gate)

    # ---------------------------------------------------------------- how far it is

    @property
    def finished(self) -> bool:
        """Whether everything is done: complete, failed, or given up behind a failure."""
        return self._left == 0

    @property
    def quiet(self) -> bool:
        """Whether it will send nothing more, unless something arrives.

        When all hosts are quiet and nothing is on its way, no receive will complete any more.
        """
        return self._outstanding_sends == 0 and not self._due

    @property
    def failed(self) -> bool:
        """Whether any of it failed."""
        return bool(self.failures)

    @property
    def next_at_ns(self) -> int:
        """When `on_time` has something to post; NEVER_NS: nothing waits for a time."""
        return self._due[0][0] if self._due else NEVER_NS

    @property
    def left(self) -> int:
        """Sends and receives that are not over."""
        return self._left

    def outstanding(self) -> Iterator[tuple[str, int, Key]]:
        """("send" or "receive", peer, key) of all that is posted and not over, in order."""
        for word, ends in (("send", self._sending), ("receive", self._receiving)):
            for peer, keys in ends.items():
                yield from ((word, peer, key) for key in sorted(keys))

    # ---------------------------------------------------------------- what happens

    def begin(self, now_ns: int = 0) -> Posts:
        """The run begins."""
        self._now_ns = now_ns
        receives = [message for peer in self._receives for message in self._next_receives(peer)]
        return Posts(receives, [message for peer in self._sends for message in self._ready(peer)])

    def on_time(self, now_ns: int) -> Posts:
        """It is later now."""
        self._now_ns = max(self._now_ns, now_ns)
        sends: list[Message] = []
        while self._due and self._due[0][0] <= self._now_ns:
            sends += self._ready(heapq.heappop(self._due)[1])
        return Posts([], sends)

    def on_sent(self, peer: int, key: Key) -> Posts:
        """A send completed. KeyError if it was not outstanding."""
        self._end_send(peer, key)
        return Posts([], self._ready(peer))

    def on_received(self, peer: int, key: Key) -> Posts:
        """A receive completed, and was combined. KeyError if it was not outstanding."""
        self._receiving[peer].remove(key)
        self._left -= 1
        sends: list[Message] = []
        for gate in self._opens.pop((peer, key), ()):
            gate.missing -= 1
            if gate.missing == 0:
                waiting, gate.waiting = gate.waiting, []
                for each in waiting:
                    sends += self._ready(each)
        return Posts(self._next_receives(peer), sends)

    def on_send_failed(self, peer: int, key: Key) -> None:
        """A send completed in error: nothing more goes to this peer."""
        self._end_send(peer, key)
        self.failures.append((peer, key))
        self._left -= len(self._sends[peer])
        self._sends[peer].clear()

    def on_receive_failed(self, peer: int, key: Key) -> None:
        """A receive completed in error: nothing more is awaited of this peer."""
        self._receiving[peer].remove(key)
        self._left -= 1 + len(self._receives[peer])
        self._receives[peer].clear()
        self.failures.append((peer, key))

    def _end_send(self, peer: int, key: Key) -> None:
        self._sending[peer].remove(key)
        self._outstanding_sends -= 1
        self._left -= 1

    # ---------------------------------------------------------------- what to post

    def _next_receives(self, peer: int) -> list[Message]:
        queue, posted = self._receives[peer], self._receiving[peer]
        fresh: list[Message] = []
        while queue and len(posted) < 2 * self._depth:
            fresh.append(queue.popleft())
            posted.add(fresh[-1].key)
        return fresh

    def _ready(self, peer: int) -> list[Message]:
        """The sends to a peer that may be posted now; a wait is noted down."""
        queue, posted = self._sends[peer], self._sending[peer]
        fresh: list[Message] = []
        while queue and len(posted) < self._depth and not self._waits(queue[0], peer):
            fresh.append(queue.popleft())
            posted.add(fresh[-1].key)
        self._outstanding_sends += len(fresh)
        return fresh

    def _waits(self, message: Message, peer: int) -> bool:
        gate = self._gates[id(message.after)] if message.after else None
        if gate is not None and gate.missing:
            if peer not in gate.waiting:
                gate.waiting.append(peer)
            return True
        if message.at_ns > self._now_ns:
            if (message.at_ns, peer) not in self._due:
                heapq.heappush(self._due, (message.at_ns, peer))
            return True
        return False


def _by_peer(
    messages: Iterable[tuple[int, Message]],
) -> dict[int, collections.deque[Message]]:
    queues: dict[int, collections.deque[Message]] = {}
    for peer, message in messages:
        queues.setdefault(peer, collections.deque()).append(message)
    return queues


def host_works(workload: Workload, depth: int = DEPTH) -> dict[int, HostWork]:
    """Every host that takes part, by its index in the plan, with its work."""
    ends = by_host(workload)
    return {host: HostWork(sends, receives, depth) for host, (sends, receives) in ends.items()}
