# SPDX-License-Identifier: GPL-2.0-or-later
"""Control messages: what the two ends of a ShiftQP tell each other over the backup NIC [D].

Each is one WRITE with immediate into a mailbox of the peer. The immediate is the receive counter's
low 32 bits; the 52 bytes hold all of it, and whose it is: captures have no other way to tell which
queue pairs are one connection.
"""

from __future__ import annotations

import dataclasses
import enum
import struct

from softroce_lab.errors import LabError

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
