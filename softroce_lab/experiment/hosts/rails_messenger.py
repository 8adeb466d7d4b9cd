# SPDX-License-Identifier: GPL-2.0-or-later
"""One host's end of a transport over several rails at once: each message takes one of them.

A rail has an RNIC, queue pairs or peers, and a policy of its own. Both ends find a message's rail
by what the workload calls it, so that sends and receives of a rail meet in their order.
"""

from __future__ import annotations

import dataclasses
import select
from collections.abc import Sequence
from typing import Any

from softroce_lab.experiment.hosts.messenger import (
    NO_FD,
    Address,
    Done,
    Messenger,
    RailQueuePairs,
)
from softroce_lab.recovery.api import Key


class RailsMessenger:
    """Messengers, a rail each; the first is that of the host's own rail."""

    def __init__(self, parts: Sequence[Messenger]) -> None:
        self.parts = tuple(parts)
        self.fd, self._poll = NO_FD, None
        if all(part.fd != NO_FD for part in self.parts):
            self._poll = select.epoll()
            for part in self.parts:
                self._poll.register(part.fd, select.EPOLLIN)
            self.fd = self._poll.fileno()

    def _of(self, key: Key) -> Messenger:
        return self.parts[sum(key) % len(self.parts)]

    def address(self, peer: int) -> Address:
        """Where this peer reaches us, on each rail."""
        first, *more = (part.address(peer) for part in self.parts)
        return dataclasses.replace(first, rails=[dataclasses.asdict(each) for each in more])

    @property
    def queue_pairs(self) -> list[RailQueuePairs]:
        """Of RC on each rail."""
        return [
            each._replace(rail=rail, part=rail, parts=len(self.parts))
            for rail, part in enumerate(self.parts)
            for each in getattr(part, "queue_pairs", [])
        ]

    def connect(self, peer: int, address: Address) -> None:
        """Make a peer known on each rail."""
        first, *more = self.parts
        first.connect(peer, dataclasses.replace(address, rails=[]))
        for part, each in zip(more, address.rails, strict=True):
            part.connect(peer, Address(**each))

    def post_send(self, peer: int, key: Key, offset: int, length: int) -> None:
        """Send bytes of the memory."""
        self._of(key).post_send(peer, key, offset, length)

    def post_receive(self, peer: int, key: Key, offset: int, length: int) -> None:
        """Receive a message into the memory."""
        self._of(key).post_receive(peer, key, offset, length)

    def disconnect(self, peer: int) -> None:
        """No post with the peer stays open on any rail."""
        for part in self.parts:
            part.disconnect(peer)

    @property
    def next_time_ns(self) -> int:
        """The earliest of all."""
        return min(part.next_time_ns for part in self.parts)

    def step(self) -> int:
        """Let the policies of all rails decide; how many events."""
        return sum(part.step() for part in self.parts)

    def completions(self) -> list[Done]:
        """All completed posts that were not reported yet."""
        return [done for part in self.parts for done in part.completions()]

    def summary(self) -> dict[str, Any]:
        """The reports of the policies: counts are added up, the rest is the first rail's."""
        return _added([part.summary() for part in self.parts])

    def close(self) -> None:
        """End everything."""
        for part in self.parts:
            part.close()
        if self._poll is not None:
            self._poll.close()


def _added(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found = dict(reports[0])
    for name, value in found.items():
        others = [each.get(name) for each in reports[1:]]
        if isinstance(value, int) and not isinstance(value, bool):
            found[name] = value + sum(other for other in others if isinstance(other, int))
        elif isinstance(value, dict):
            found[name] = _added([value, *(other for other in others if isinstance(other, dict))])
    return found
