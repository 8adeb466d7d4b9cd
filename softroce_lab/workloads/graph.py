# SPDX-License-Identifier: GPL-2.0-or-later
"""The graph of a whole schedule, messages included: its order, its cycles, its rounds, its flows.

Each vertex has two events, its start and its completion: a dependency leads from the completion of
what is required, or from its start (irequires); a message from the start of its send to the
completion of its receive. Whether a send is complete does not depend on the receiver's graph.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import TypeAlias

from softroce_lab.transports.api import Key
from softroce_lab.workloads.message import Message
from softroce_lab.workloads.schedule import Receive, Schedule, Send
from softroce_lab.workloads.work import Workload

Place: TypeAlias = tuple[int, int]
"""A vertex: its host, and its index there."""
_Name: TypeAlias = tuple[int, int, Key]


class CycleError(ValueError):
    """Vertices that wait for each other, each for the next one; the last waits for the first."""

    def __init__(self, places: list[Place]) -> None:
        super().__init__(f"{len(places)} vertices wait for each other")
        self.places = places


@dataclasses.dataclass(frozen=True)
class Graph:
    """Events 2v and 2v + 1 are the start and the completion of the v-th vertex of all hosts."""

    places: list[Place]
    successors: list[list[int]]

    @classmethod
    def of(cls, schedule: Schedule, *, in_order: bool) -> Graph:
        """The graph; `in_order`: a send to a host starts after those before it to the same host."""
        places = [(host, n) for host, each in schedule.of.items() for n in range(len(each))]
        successors: list[list[int]] = [[] for _ in range(2 * len(places))]
        sends: dict[_Name, int] = {}
        receives: dict[_Name, int] = {}
        latest: dict[Place, int] = {}  # by the two hosts: the send before
        first = 0
        for host, vertices in schedule.of.items():
            for at, vertex in enumerate(vertices, first):
                successors[2 * at].append(2 * at + 1)
                for required in vertex.requires:
                    successors[2 * (first + required) + 1].append(2 * at)
                for required in vertex.irequires:
                    successors[2 * (first + required)].append(2 * at)
                if isinstance(vertex, Receive):
                    receives[_name(vertex.message)] = at
                elif isinstance(vertex, Send):
                    sends[_name(vertex.message)] = at
                    pair = host, vertex.message.destination
                    if in_order and pair in latest:
                        successors[2 * latest[pair]].append(2 * at)
                    latest[pair] = at
            first += len(vertices)
        for name, send in sends.items():
            successors[2 * send].append(2 * receives[name] + 1)
        return cls(places, successors)

    def order(self) -> list[int]:
        """All events, each behind those that it waits for (Kahn). CycleError."""
        missing = self._predecessor_counts()
        ready = collections.deque(event for event, count in enumerate(missing) if not count)
        found = []
        while ready:
            event = ready.popleft()
            found.append(event)
            for follower in self.successors[event]:
                missing[follower] -= 1
                if not missing[follower]:
                    ready.append(follower)
        if len(found) < len(missing):
            raise CycleError(self._cycle({event for event, left in enumerate(missing) if left}))
        return found

    def _predecessor_counts(self) -> list[int]:
        counts = [0] * len(self.successors)
        for followers in self.successors:
            for follower in followers:
                counts[follower] += 1
        return counts

    def _cycle(self, stuck: set[int]) -> list[Place]:
        """Of events that never happen, some that wait for each other."""
        waits_for = {
            follower: event for event in stuck for follower in self.successors[event]
        }  # each of them waits for another one
        path: dict[int, None] = {}
        event = min(stuck)
        while event not in path:
            path[event] = None
            event = waits_for[event]
        events = list(path)
        places = [self.places[each // 2] for each in events[events.index(event) :]]
        return list(dict.fromkeys(places))

    def rounds(self, schedule: Schedule) -> dict[_Name, int]:
        """Of each message, how many must be sent one after the other, itself included."""
        before = [0] * len(self.successors)
        found: dict[_Name, int] = {}
        for event in self.order():
            host, index = self.places[event // 2]
            vertex, begins = schedule.of[host][index], event % 2 == 0
            sends = isinstance(vertex, Send) and begins
            if isinstance(vertex, Send) and begins:
                found[_name(vertex.message)] = before[event] + 1
            for follower in self.successors[event]:
                behind = sends and follower % 2  # the completion of the send or of its receive
                before[follower] = max(before[follower], before[event] + behind)
        return found


def _name(message: Message) -> _Name:
    return message.source, message.destination, message.key


@dataclasses.dataclass(slots=True)
class Flow:
    """All messages from one host to another."""

    source: int
    destination: int
    messages: int = 0
    bytes: int = 0
    first_round: int = 0
    last_round: int = 0
    not_before_ns: int = 0  # of the first message

    def add(self, length_bytes: int, round_: int, at_ns: int) -> None:
        """A message, of a round: so many must be sent one after the other, itself included."""
        if not self.messages:
            self.first_round, self.not_before_ns = round_, at_ns
        self.first_round = min(self.first_round, round_)
        self.last_round = max(self.last_round, round_)
        self.messages += 1
        self.bytes += length_bytes


def flows(workload: Workload) -> list[Flow]:
    """All pairs of hosts with messages, in the order of ranks, then of their first message."""
    schedule = workload.schedule()
    rounds = Graph.of(schedule, in_order=False).rounds(schedule)
    found: dict[tuple[int, int], Flow] = {}
    for host, vertices in schedule.of.items():
        for vertex in vertices:
            if isinstance(vertex, Send):
                message = vertex.message
                pair = host, message.destination
                flow = found.setdefault(pair, Flow(*pair))
                flow.add(message.length_bytes, rounds[(*pair, message.key)], vertex.at_ns)
    return list(found.values())
