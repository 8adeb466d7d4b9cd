# SPDX-License-Identifier: GPL-2.0-or-later
"""One host's part in a run of a workload, the same on both clocks.

The driver posts the sends and receives of the host's work, takes completions, moves bytes and
records how each message ended. A simulation (virtual.py) or the loop of a host's process
(process.py) calls the driver when something has happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from softroce_lab.errors import RunError
from softroce_lab.experiment.hosts.buffers import HostMemory
from softroce_lab.experiment.hosts.messenger import (
    Address,
    Completion,
    Messenger,
    RailQueuePairs,
    immediate,
)
from softroce_lab.experiment.messages import NEVER_NS, open_ends
from softroce_lab.transports import api
from softroce_lab.verbs.enums import IBV_WC_SUCCESS, IBV_WC_WITH_IMM
from softroce_lab.workloads.message import Message
from softroce_lab.workloads.progress import HostWork
from softroce_lab.workloads.schedule import Receive, Schedule, Send

_SUCCESS = int(IBV_WC_SUCCESS)
_WITH_IMM = int(IBV_WC_WITH_IMM)


class HostDriver(HostWork):
    """Does a host's work over messengers, one for each rail. A message takes one rail.

    Both ends compute a message's rail from its key, so sends and receives match on each rail in
    the order of posting. The workload's clock starts with the run, the engine's before it.
    """

    def __init__(
        self,
        schedule: Schedule,
        index: int,
        depth: int,
        rails: Sequence[Messenger],
        memory: HostMemory | None,
        *,
        path_mtu: int,
    ) -> None:
        """`index`: the host's; `memory`: None if packets carry no bytes."""
        super().__init__(schedule.of[index], depth)
        self.index = index
        self.peers = schedule.peers(index)
        self.rails = rails
        self.memory = memory
        self._path_mtu = path_mtu
        self.ends = open_ends(len(self._vertices))
        self.done_bytes = 0  # of completed sends and receives
        self.done_messages = 0  # completed receives
        self.failed_peers: list[int] = []  # an entry for each failed post
        self._began_ns = 0

    # ---------------------------------------------------------------- before the run

    def address(self, peer: int) -> list[Address]:
        return [rail.address(peer) for rail in self.rails]

    def connect(self, peer: int, addresses: Sequence[Address]) -> None:
        for rail, address in zip(self.rails, addresses, strict=True):
            rail.connect(peer, address)

    @property
    def queue_pairs(self) -> list[RailQueuePairs]:
        """RC queue pairs on all rails, in the same order on all hosts."""
        if len(self.rails) == 1:
            return list(self.rails[0].queue_pairs)
        return [
            each._replace(rail=rail, part=rail, parts=len(self.rails))
            for rail, messenger in enumerate(self.rails)
            for each in messenger.queue_pairs
        ]

    # ---------------------------------------------------------------- the run

    def start(self, began_ns: int = 0, now_ns: int = 0) -> None:
        """`begin`, after `prepare`. Both times are the engine's; `began_ns`: when the run began."""
        self._began_ns = began_ns
        self.begin(now_ns - began_ns)

    @property
    def due_ns(self) -> int:
        """When to call `wake`, in the engine's time; NEVER_NS: nothing waits for a time."""
        at_ns = self.next_at_ns
        return at_ns if at_ns == api.NEVER_NS else self._began_ns + at_ns

    def wake(self, now_ns: int) -> None:
        """`on_time`. `now_ns`: in the engine's time."""
        self.on_time(now_ns - self._began_ns)

    def step(self) -> None:
        """Let recovery handle its events, if no other thread does (virtual clock)."""
        for rail in self.rails:
            rail.step()

    def serve(self) -> None:
        for completion in [each for rail in self.rails for each in rail.completions()]:
            self.complete(completion)

    def disconnect(self, peer: int) -> None:
        for rail in self.rails:
            rail.disconnect(peer)

    # ---------------------------------------------------------------- what the work asks for

    def _rail(self, message: Message) -> Messenger:
        return self.rails[sum(message.key) % len(self.rails)]

    def send(self, number: int, message: Message) -> None:
        self.ends["posted_ns"][number] = self._now_ns  # a send that never completes keeps it
        at = message.source_offset if self.memory is None else self.memory.source(message)
        self._rail(message).post_send(number, message, at)

    def receive(self, number: int, message: Message) -> None:
        at = message.destination_offset if self.memory is None else self.memory.place(message)
        self._rail(message).post_receive(number, message, at)

    def keep(self, message: Message) -> None:
        if self.memory is not None:
            self.memory.keep(message)

    def combine(self, message: Message) -> None:
        if self.memory is not None:
            self.memory.combine(message)

    # ---------------------------------------------------------------- what is over

    def complete(self, completion: Completion) -> None:
        """Record how a post ended. RunError if it matched the wrong message of its peer."""
        number, status = completion.wr_id, completion.status
        vertex = cast("Send | Receive", self._vertices[number])
        message, began_ns = vertex.message, self._began_ns
        first_ns, now_ns = completion.first_ns, completion.completed_ns - began_ns
        begun = first_ns or status == _SUCCESS
        self.ends[number] = (
            status,
            completion.packets or max(1, -(-message.length_bytes // self._path_mtu)),
            completion.retransmitted,
            completion.duplicates,
            completion.posted_ns - began_ns,
            first_ns - began_ns if begun else NEVER_NS,
            now_ns,
        )
        if status != _SUCCESS:
            self._fail(number, vertex)
        elif isinstance(vertex, Send):
            self.done_bytes += message.length_bytes
            if self.memory is not None:
                self.memory.sent(message)
            self.on_sent(number, now_ns)
        else:
            _check(completion, message)
            self.done_bytes += message.length_bytes
            self.done_messages += 1
            self.on_received(number, now_ns)

    def _fail(self, number: int, vertex: Send | Receive) -> None:
        if isinstance(vertex, Send):
            self.failed_peers.append(vertex.message.destination)
            self.on_send_failed(number)
        else:
            self.failed_peers.append(vertex.message.source)
            self.on_receive_failed(number)

    # ---------------------------------------------------------------- afterwards

    def wrong(self, digest: str | None = None) -> list[str] | None:
        """Errors in the received bytes; None if they were not checked, or not all arrived.

        `digest`: SHA-256 of the right bytes in hex, if it is known.
        """
        if self.memory is None or not self.finished or self.failed:
            return None
        return self.memory.wrong(digest)

    def summary(self) -> dict[str, Any]:
        """The transport's figures: counts are summed over rails, the rest is the first rail's."""
        return _added([rail.summary() for rail in self.rails])


def _check(completion: Completion, message: Message) -> None:
    if completion.flags & _WITH_IMM and completion.immediate != immediate(message.key):
        raise RunError(
            f"host {message.source} sent another message than {message.key}: sends and receives "
            "were posted in different orders"
        )
    if completion.byte_len != message.length_bytes:
        raise RunError(
            f"message {message.key} of host {message.source} is {completion.byte_len} bytes long"
        )


def _added(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    sums = dict(reports[0])
    for name, value in sums.items():
        others = [each.get(name) for each in reports[1:]]
        if isinstance(value, int) and not isinstance(value, bool):
            sums[name] = value + sum(other for other in others if isinstance(other, int))
        elif isinstance(value, dict):
            sums[name] = _added([value, *(other for other in others if isinstance(other, dict))])
    return sums
