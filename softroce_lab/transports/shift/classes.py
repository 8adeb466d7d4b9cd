# SPDX-License-Identifier: GPL-2.0-or-later
"""The trilemma in code: which requests in flight at a failure may be carried out again.

Exactly-once execution, opacity of the receiver's NIC and zero copies cannot be had together across
NICs [S]. The receive counter of the peer tells how far its NIC had executed; for the rest it counts
whether a second execution is harmless.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from softroce_lab.transports.shift.messages import ProtocolError

RDMA_WRITE, RDMA_READ, COMPARE_SWAP, FETCH_ADD = 0, 4, 5, 6  # enum ibv_wr_opcode
SEND_ONCE = 1 << 31
"""A send flag of the lab: the request must never be executed twice."""

_ONE_SIDED = (RDMA_WRITE, RDMA_READ, COMPARE_SWAP, FETCH_ADD)
_ATOMICS = (COMPARE_SWAP, FETCH_ADD)
_WITH_RESULTS = (RDMA_READ, COMPARE_SWAP, FETCH_ADD)


class Request(Protocol):
    """What matters of a request."""

    opcode: int
    send_flags: int
    wr_id: int


class Unfinished(Protocol):
    """A request that did not succeed, and whether a packet of it had left."""

    @property
    def request(self) -> Request:
        """The request."""

    @property
    def begun(self) -> bool:
        """Whether a packet of it has left."""


def consumes_receive(request: Request) -> bool:
    """Whether the peer is notified of it: a SEND, or a WRITE with immediate."""
    return request.opcode not in _ONE_SIDED


@dataclasses.dataclass(frozen=True)
class Classes:
    """Requests in their order: the peer executed `consumed`; `rest` is what is to be done.

    `culprit`: the first that may be neither called done nor repeated, None if there is none.
    """

    consumed: list[Request]
    rest: list[Request]
    culprit: Request | None


def classify(unfinished: Sequence[Unfinished], executed: int) -> Classes:
    """Divide what is unfinished, of which the peer counts `executed` notifications.

    RC executes in order, so all that was posted before an executed notification was executed too:
    a WRITE among it must not be repeated, for the peer may have reused its memory. Only the result
    of a READ or an atomic may be missing; it cannot be had again.
    """
    consumed: list[Request] = []
    rest = [each.request for each in unfinished]
    length = _prefix(rest, executed)
    consumed, rest = rest[:length], rest[length:]
    culprit = next((each for each in consumed if each.opcode in _WITH_RESULTS), None)
    if culprit is None:
        begun = [each.request for each in unfinished[length:] if each.begun]
        culprit = next((each for each in begun if _not_repeatable(each)), None)
    return Classes(consumed, rest, culprit)


def _prefix(requests: Sequence[Request], executed: int) -> int:
    """How many requests there are up to and with the last notification that was executed."""
    if executed == 0:
        return 0
    left = executed
    for index, request in enumerate(requests):
        left -= consumes_receive(request)
        if left == 0:
            return index + 1
    raise ProtocolError(f"the peer counts {executed} notifications that nobody sent it")


def _not_repeatable(request: Request) -> bool:
    return request.opcode in _ATOMICS or bool(request.send_flags & SEND_ONCE)
