# SPDX-License-Identifier: GPL-2.0-or-later
"""What the ends of a ShiftQP know and tell each other, and what may be repeated.

SHIFT: arXiv 2512.11094, docs/explanation/shift.md. Control messages are this project's [D]. Each is
one WRITE with immediate into a mailbox of the peer, over the backup NIC. The immediate is the
receive counter's low 32 bits; the 52 bytes hold all of it, and whose it is: captures have no other
way to tell which queue pairs are one connection.

Exactly-once execution, opacity of the receiver's NIC and zero copies cannot be had together across
NICs [S]. The receive counter of the peer tells how far its NIC had executed; for the rest it counts
whether a second execution is harmless.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from softroce_lab.errors import LabError


class Sender(enum.Enum):
    """States of the sending side, by their published names; FAILED is the lab's."""

    DEFAULT = "Default"
    FALLBACK = "Fallback"
    WAIT_SIGNALED = "WaitSignaled"
    WAIT_DRAINED = "WaitDrained"
    FAILED = "Failed"


class Receiver(enum.Enum):
    """States of the receiving side, by their published names."""

    DEFAULT = "Default"
    FALLBACK = "Fallback"


class Path(enum.IntEnum):
    """Which of the two queue pairs; an epoch's path is its lowest bit."""

    DEFAULT = 0
    BACKUP = 1

    @classmethod
    def of(cls, epoch: int) -> Path:
        """The path that an epoch uses."""
        return cls(epoch & 1)


@dataclasses.dataclass(frozen=True)
class Event:
    """A transition: what a side was in, what it is in now, why, and how much was moved."""

    at_ns: int
    qp_num: int
    epoch: int
    side: str  # "sender" or "receiver"
    before: str
    after: str
    why: str
    consumed: int = 0  # requests that the peer had executed
    resubmitted: int = 0  # requests that were posted again
    receives: int = 0  # receives that were posted again
    peer_gid: str = ""  # of the peer's default NIC; "": not connected yet
    peer_qp_num: int = 0

    def row(self, names: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
        """In the columns of `telemetry.transitions`, but for the host; `names`: by GID."""
        return {
            "time_ns": self.at_ns,
            "peer": names.get(self.peer_gid, self.peer_gid),
            "qp": self.qp_num,
            "peer_qp": self.peer_qp_num,
            "epoch": self.epoch,
            "side": self.side,
            "before": self.before,
            "after": self.after,
            "why": self.why,
            "consumed": self.consumed,
            "resubmitted": self.resubmitted,
            "receives": self.receives,
        }


@dataclasses.dataclass(frozen=True)
class Settings:
    """Times and sizes; all in ns.

    `handshake_timeout_ns`: how long a peer may take to answer, before the failure surfaces.
    `probe_interval_ns`: between probes of the default path; it doubles after each that fails, or
    that led to a failback which failed within it, up to `most_probe_interval_ns`.
    `drain_timeout_ns`: how long requests are held for a failback, before it is given up.
    """

    handshake_timeout_ns: int = 2_000_000_000
    probe_interval_ns: int = 20_000_000
    most_probe_interval_ns: int = 2_000_000_000
    drain_timeout_ns: int = 500_000_000


BYTES = 52
_FORMAT = struct.Struct(">4sBxxxIIQIII16s")
MAGIC = b"SHF2"
PSN_MASK = 0xFFFFFF


class Kind(enum.IntEnum):
    """What a message is for."""

    MOVE = 1  # the sender's receives are in `epoch`; of earlier ones it executes nothing more
    DRAINED = 2  # the sender has no request in flight in `epoch`, and posts none
    RESUME = 3  # it posts in `epoch` after all
    FAILED = 4  # it has surfaced an error, and is gone


@dataclasses.dataclass(frozen=True)
class Whose:
    """The end that a message is of: its queue pairs, and the GID of its default NIC, 16 bytes."""

    default_qp: int = 0
    backup_qp: int = 0
    gid: bytes = bytes(16)


_NOBODY = Whose()


@dataclasses.dataclass(frozen=True)
class Message:
    """What one end tells the other.

    `received`: messages that consumed a receive, ever. `next_psn`: where the QP that is left begins
    when it is used again.
    """

    kind: Kind
    epoch: int
    received: int = 0
    next_psn: int = 0

    def encode(self, sequence: int, whose: Whose = _NOBODY) -> bytes:
        """The bytes of it, as number `sequence` of this direction."""
        return _FORMAT.pack(
            MAGIC,
            self.kind,
            self.epoch,
            self.next_psn,
            self.received,
            sequence & 0xFFFFFFFF,
            whose.default_qp,
            whose.backup_qp,
            whose.gid,
        )


class ProtocolError(LabError):
    """The peer broke the protocol: it cannot be trusted with what is in flight."""


def decode(data: bytes, sequence: int) -> Message:
    """The message in a mailbox; ProtocolError, if it is not number `sequence`."""
    found = read(data)
    if found is None or found[1] != sequence & 0xFFFFFFFF:
        raise ProtocolError(f"the mailbox does not hold message {sequence} of the peer")
    return found[0]


def read(data: bytes) -> tuple[Message, int, Whose] | None:
    """Any message, its number, and whose it is; None: the bytes are none."""
    if len(data) != BYTES or not data.startswith(MAGIC) or data[4] not in list(Kind):
        return None
    _, kind, epoch, psn, received, number, default_qp, backup_qp, gid = _FORMAT.unpack(data)
    message = Message(Kind(kind), epoch, received, psn & PSN_MASK)
    return message, number, Whose(default_qp, backup_qp, gid)


RDMA_WRITE, RDMA_READ, COMPARE_SWAP, FETCH_ADD = 0, 4, 5, 6  # enum ibv_wr_opcode
SEND_ONCE = 1 << 31
"""A send flag of the lab: the request must never be executed twice."""

_ONE_SIDED = (RDMA_WRITE, RDMA_READ, COMPARE_SWAP, FETCH_ADD)
_ATOMICS = (COMPARE_SWAP, FETCH_ADD)
_WITH_RESULTS = (RDMA_READ, COMPARE_SWAP, FETCH_ADD)


def consumes_receive(request: Any) -> bool:
    """Whether the peer is notified of it: a SEND, or a WRITE with immediate."""
    return request.opcode not in _ONE_SIDED


@dataclasses.dataclass(frozen=True)
class Classes:
    """Requests in their order: the peer executed `consumed`; `rest` is what is to be done.

    `culprit`: the first that may be neither called done nor repeated, None if there is none.
    """

    consumed: list[Any]
    rest: list[Any]
    culprit: Any


def classify(unfinished: Sequence[Any], executed: int) -> Classes:
    """Divide what is unfinished, of which the peer counts `executed` notifications.

    RC executes in order, so all that was posted before an executed notification was executed too:
    a WRITE among it must not be repeated, for the peer may have reused its memory. Only the result
    of a READ or an atomic may be missing; it cannot be had again.
    """
    consumed: list[Any] = []
    rest = [each.request for each in unfinished]
    length = _prefix(rest, executed)
    consumed, rest = rest[:length], rest[length:]
    culprit = next((each for each in consumed if each.opcode in _WITH_RESULTS), None)
    if culprit is None:
        begun = [each.request for each in unfinished[length:] if each.begun]
        culprit = next((each for each in begun if _not_repeatable(each)), None)
    return Classes(consumed, rest, culprit)


def _prefix(requests: Sequence[Any], executed: int) -> int:
    """How many requests there are up to and with the last notification that was executed."""
    if executed == 0:
        return 0
    left = executed
    for index, request in enumerate(requests):
        left -= consumes_receive(request)
        if left == 0:
            return index + 1
    raise ProtocolError(f"the peer counts {executed} notifications that nobody sent it")


def _not_repeatable(request: Any) -> bool:
    return request.opcode in _ATOMICS or bool(request.send_flags & SEND_ONCE)
