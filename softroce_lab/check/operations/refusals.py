# SPDX-License-Identifier: GPL-2.0-or-later
"""Refusals of operations by responders."""

from __future__ import annotations

from collections.abc import Iterator

from softroce_lab.check.operations.connections import REQUEST, RESULT, Connection, Operations
from softroce_lab.check.striped.controls import ControlMessage
from softroce_lab.check.striped.messages import NEVER
from softroce_lab.transports.control import Refused


class Refusals:
    """The first refusal of each operation that a responder refuses."""

    def __init__(self, of: Operations) -> None:
        self.unclear = 0  # of a connection that the capture does not tell
        self._first: dict[tuple[int, int], tuple[Connection, ControlMessage]] = {}
        self._unsure: set[int] = set()
        for sent in of.lab.controls.sent:
            if not isinstance(sent.body, Refused) or not _is_responders(sent.body):
                continue
            connections = _connections_of(of, sent, sent.body)
            if len(connections) == 1:
                (one,) = connections
                self._first.setdefault((id(one), sent.body.key[2]), (one, sent))
            else:
                self.unclear += 1
                self._unsure |= set(map(id, connections))

    def __iter__(self) -> Iterator[tuple[Connection, int, ControlMessage]]:
        for (_, number), (connection, sent) in self._first.items():
            yield connection, number, sent

    def at(self, connection: Connection, number: int) -> int:
        """The place where the refusal of an operation was first seen; NEVER."""
        found = self._first.get((id(connection), number))
        return NEVER if found is None else found[1].at

    def may_be_of(self, connection: Connection) -> bool:
        """Whether a refusal may be of this connection, or of another one."""
        return id(connection) in self._unsure


def _is_responders(body: Refused) -> bool:
    """Whether a responder refuses an operation: its request that came, or the result to be sent."""
    kind = body.key[0] >> 8
    return (kind == REQUEST and body.by_receiver) or (kind == RESULT and not body.by_receiver)


def _connections_of(of: Operations, sent: ControlMessage, body: Refused) -> list[Connection]:
    """Those whose operation it may be that a responder refuses."""
    back = of.view.streams[sent.stream].back
    operation, step, number = body.key
    is_request, qp = operation >> 8 == REQUEST, (operation & 0xFF) << 16 | step
    named_in = back if is_request else sent.stream
    message = None if named_in is None else of.view.find_message(named_in, body.id)
    if message is not None and message in of.connection_of:
        return [of.connection_of[message]]
    # No packet of the message was captured.
    return [
        each
        for each in of.connections
        if each.stream == back
        and (each.qp == qp if is_request else each.requester_qp in (None, qp))
        and any(one.number == number for one in each.requests)
    ]
