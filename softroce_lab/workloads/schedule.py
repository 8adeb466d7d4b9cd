# SPDX-License-Identifier: GPL-2.0-or-later
"""The one form of all workloads: for each host a graph of sends, receives and computations.

It is GOAL's model: Hoefler, Siebert, Lumsdaine: Group Operation Assembly Language - A Flexible Way
to Express Collective Communication (ICPP 2009). A vertex starts when all that it requires is
complete. A send is complete when the transport acknowledged it, a receive when its message has
arrived, a computation when its time is over.

Between two hosts the order of the sends is the order of the receives, as on one queue pair.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from softroce_lab.workloads.message import Message

Requires: TypeAlias = tuple[int, ...]
"""Vertices of the same host, by their index."""


@dataclasses.dataclass(slots=True)
class Send:
    """Post a send, as soon as those before it to the same host are posted."""

    message: Message
    requires: Requires = ()
    irequires: Requires = ()  # what must have started, not ended
    at_ns: int = 0  # not before this time since the run began


@dataclasses.dataclass(slots=True)
class Receive:
    """Await a message, and combine it. It may arrive before what the receive requires."""

    message: Message
    requires: Requires = ()
    irequires: Requires = ()


@dataclasses.dataclass(slots=True)
class Compute:
    """Keep a processor of the host busy; one of 0 ns only joins what others require."""

    duration_ns: int = 0
    requires: Requires = ()
    irequires: Requires = ()
    at_ns: int = 0  # not before this time since the run began
    cpu: int = 0  # one of 0 ns takes none


Vertex: TypeAlias = Send | Receive | Compute


def copied(
    vertex: Vertex,
    moved: Mapping[int, Message],
    requires: Requires,
    irequires: Requires,
    later_ns: int = 0,
) -> Vertex:
    """A vertex of a part, in the whole; `moved`: messages of the whole, by id of the part's."""
    match vertex:
        case Send(message):
            return Send(moved[id(message)], requires, irequires, vertex.at_ns + later_ns)
        case Receive(message):
            return Receive(moved[id(message)], requires, irequires)
        case Compute(duration_ns, cpu=cpu):
            return Compute(duration_ns, requires, irequires, vertex.at_ns + later_ns, cpu)


class Schedule:
    """What every host does. `of[host]` are its vertices, `messages` all messages in order."""

    def __init__(self, hosts: Iterable[int]) -> None:
        self.of: dict[int, list[Vertex]] = {host: [] for host in hosts}
        self.messages: list[Message] = []

    def transfer(self, message: Message, requires: Requires = (), at_ns: int = 0) -> Receive:
        """Let the source send a message and the destination receive it.

        `requires` are vertices of the source. The receive requires nothing, yet.
        """
        receive = Receive(message)
        self.of[message.source].append(Send(message, requires, (), at_ns))
        self.of[message.destination].append(receive)
        self.messages.append(message)
        return receive

    def compute(
        self, host: int, duration_ns: int, requires: Requires = (), *, at_ns: int = 0, cpu: int = 0
    ) -> int:
        """Let a host compute; the vertex's index."""
        self.of[host].append(Compute(duration_ns, requires, (), at_ns, cpu))
        return len(self.of[host]) - 1

    def sends(self, host: int) -> Iterator[Message]:
        """What a host will send, in order."""
        return (each.message for each in self.of[host] if isinstance(each, Send))

    def receives(self, host: int) -> Iterator[Message]:
        """What a host will receive, in order."""
        return (each.message for each in self.of[host] if isinstance(each, Receive))

    def peers(self, host: int) -> tuple[int, ...]:
        """Whom a host exchanges messages with, ascending."""
        found = set()
        for each in self.of[host]:
            if isinstance(each, Send):
                found.add(each.message.destination)
            elif isinstance(each, Receive):
                found.add(each.message.source)
        return tuple(sorted(found))
