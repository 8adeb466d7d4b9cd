# SPDX-License-Identifier: GPL-2.0-or-later
"""A GOAL program as a workload.

The n-th receive of a source, a destination and a tag takes the n-th send. A host's buffer is what
it sends, a part for each message, and behind it what it receives, so each message has bytes of its
own at both ends.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple, TypeAlias

from softroce_lab.errors import UserError
from softroce_lab.workloads.goal.parser import Act, Operation, Program
from softroce_lab.workloads.graph import CycleError, Graph
from softroce_lab.workloads.message import UINT8, Message
from softroce_lab.workloads.schedule import Compute, Receive, Requires, Schedule, Send, Vertex
from softroce_lab.workloads.work import Copying

_Name: TypeAlias = tuple[int, int, int]  # source, destination, tag


class Pair(NamedTuple):
    """A message: the two ranks, and the operations by their index there."""

    source: int
    send: int
    destination: int
    receive: int


def pairs_of(program: Program) -> list[Pair]:
    """All messages; those between two ranks in the order of their sends. UserError."""
    waiting = _receives(program)
    found = []
    for source, operations in enumerate(program.ranks):
        for index, send in enumerate(operations):
            if send.act is not Act.SEND:
                continue
            left = waiting.get((source, send.peer, send.tag))
            if left is None or (receive := next(left, None)) is None:
                what = f"a send without a receive: rank {send.peer} has none for it"
                hint = f"recv {send.amount}b from {source} tag {send.tag} in rank {send.peer}"
                raise program.error(send, what, hint)
            _check_size(program, send, program.ranks[send.peer][receive])
            found.append(Pair(source, index, send.peer, receive))
    for (source, destination, tag), left in waiting.items():
        for index in left:
            expected = program.ranks[destination][index]
            what = f"a receive without a send: rank {source} has none for it"
            hint = f"send {expected.amount}b to {destination} tag {tag} in rank {source}"
            raise program.error(expected, what, hint)
    if not found:
        raise UserError("no rank sends anything", file=program.file)
    return found


def _receives(program: Program) -> dict[_Name, Iterator[int]]:
    found: dict[_Name, list[int]] = {}
    for rank, operations in enumerate(program.ranks):
        for index, each in enumerate(operations):
            if each.act is Act.RECEIVE:
                found.setdefault((each.peer, rank, each.tag), []).append(index)
    return {name: iter(indices) for name, indices in found.items()}


def _check_size(program: Program, send: Operation, receive: Operation) -> None:
    if send.amount != receive.amount:
        what = f"{receive.amount} bytes, and the send in line {send.line} has {send.amount}"
        raise program.error(receive, what)


_MOST_SHOWN = 6  # operations of a cycle


class Goal(Copying):
    """What a GOAL file contains: its ranks are hosts, its times are nanoseconds.

    The halves of a tag name a message's operation and step; those of one tag are numbered.
    Between two hosts messages are posted in the order of the file, as long as no send then waits
    for one behind it; else in an order in which all can be sent.
    """

    name: ClassVar[str] = "goal"

    def __init__(self, program: Program, ranks: Sequence[int]) -> None:
        """`ranks` are hosts, one a rank. UserError for what is not matched, and for a cycle."""
        self.program, self.ranks, self.dtype = program, tuple(ranks), UINT8
        self._pairs = _ordered(program, pairs_of(program))

    def _length(self, pair: Pair) -> int:
        return self.program.ranks[pair.source][pair.send].amount

    @property
    def message_count(self) -> int:
        return len(self._pairs)

    @property
    def longest_message_bytes(self) -> int:
        return max(map(self._length, self._pairs), default=0)

    @functools.cached_property
    def areas(self) -> Mapping[int, tuple[int, int]]:
        """Of each host the bytes that it sends, and that it receives."""
        found = dict.fromkeys(range(self.hosts), (0, 0))
        for pair in self._pairs:
            length = self._length(pair)
            sends, receives = found[pair.source]
            found[pair.source] = sends + length, receives
            sends, receives = found[pair.destination]
            found[pair.destination] = sends, receives + length
        return {self.ranks[rank]: each for rank, each in found.items()}

    def messages(self) -> Iterator[Message]:
        return iter(self.schedule().messages)

    def _messages(self) -> Iterator[Message]:
        ends = {host: [0, sends] for host, (sends, _) in self.areas.items()}
        numbers: dict[tuple[int, int, int], Iterator[int]] = {}
        for pair in self._pairs:
            source, destination = self.ranks[pair.source], self.ranks[pair.destination]
            send = self.program.ranks[pair.source][pair.send]
            number = next(numbers.setdefault((source, destination, send.tag), itertools.count()))
            key, length = (send.tag >> 16, send.tag & 0xFFFF, number), send.amount
            yield Message(key, source, destination, length, ends[source][0], ends[destination][1])
            ends[source][0] += length
            ends[destination][1] += length

    def schedule(self) -> Schedule:
        """Made once, for several parts of a run ask for it."""
        return self._schedule

    @functools.cached_property
    def _schedule(self) -> Schedule:
        return _schedule(self.program, self.ranks, self._pairs, list(self._messages()))


# ---------------------------------------------------------------- the order between two ranks


def _ordered(program: Program, pairs: list[Pair]) -> list[Pair]:
    """The messages, those between two ranks in the order in which they are posted. UserError."""
    ranks = range(len(program.ranks))
    names = [Message((0, 0, n), p.source, p.destination, 0) for n, p in enumerate(pairs)]
    plain = _schedule(program, ranks, pairs, names)
    try:
        Graph.of(plain, in_order=True).order()
    except CycleError:
        graph = Graph.of(plain, in_order=False)
        try:
            order = graph.order()
        except CycleError as error:
            raise _cycle(program, error) from None
        return _by_start(graph, order, pairs)
    return pairs


def _by_start(graph: Graph, order: Sequence[int], pairs: Sequence[Pair]) -> list[Pair]:
    """In the order in which their sends can start."""
    at = {graph.places[event // 2]: n for n, event in enumerate(order) if event % 2 == 0}
    return sorted(pairs, key=lambda pair: at[pair.source, pair.send])


def _cycle(program: Program, error: CycleError) -> Exception:
    operations = [program.ranks[rank][index] for rank, index in error.places]
    names = [
        f"rank {rank} {operation}"
        for (rank, _), operation in zip(error.places[:_MOST_SHOWN], operations, strict=False)
    ]
    more = len(operations) - len(names)
    listed = ", ".join(names) + (f" and {more} more" if more else "")
    first = min(operations, key=lambda each: each.line)
    if len(operations) == 1:
        return program.error(first, f"a cycle: {listed} waits for itself")
    return program.error(first, f"a cycle, each waits for the next one: {listed}")


# ---------------------------------------------------------------- the graph


def _schedule(
    program: Program, ranks: Sequence[int], pairs: Sequence[Pair], messages: Sequence[Message]
) -> Schedule:
    """The graph of all hosts; `messages` are those of `pairs`, in this order between two ranks."""
    schedule = Schedule(ranks)
    schedule.messages = list(messages)
    of: list[dict[int, Message]] = [{} for _ in program.ranks]
    for pair, message in zip(pairs, messages, strict=True):
        of[pair.source][pair.send] = message
        of[pair.destination][pair.receive] = message
    for rank, operations in enumerate(program.ranks):
        places = _places(operations, list(of[rank]))
        moved = {index: place for place, index in enumerate(places)}
        schedule.of[ranks[rank]] = [
            _vertex(operations[index], of[rank].get(index), moved) for index in places
        ]
    return schedule


def _places(operations: Sequence[Operation], in_order: Sequence[int]) -> list[int]:
    """The operations, by index, with the messages to or from one peer in the order of `in_order`.

    Each takes a place that one of them has in the file.
    """
    free: dict[tuple[Act, int], Iterator[int]] = {}
    for key, group in itertools.groupby(
        sorted(in_order, key=lambda n: (operations[n].act.value, operations[n].peer, n)),
        key=lambda n: (operations[n].act, operations[n].peer),
    ):
        free[key] = iter(list(group))
    places = list(range(len(operations)))
    for index in in_order:
        places[next(free[operations[index].act, operations[index].peer])] = index
    return places


def _vertex(operation: Operation, message: Message | None, moved: Mapping[int, int]) -> Vertex:
    requires, irequires = (
        _moved(each, moved) for each in (operation.requires, operation.irequires)
    )
    if message is None:
        return Compute(operation.amount, requires, irequires, cpu=operation.cpu)
    made = Send if operation.act is Act.SEND else Receive
    return made(message, requires, irequires)


def _moved(required: Sequence[int], moved: Mapping[int, int]) -> Requires:
    return tuple(moved[each] for each in required)
