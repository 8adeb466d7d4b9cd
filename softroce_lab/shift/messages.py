# SPDX-License-Identifier: GPL-2.0-or-later
"""Control messages: what the two ends of a ShiftQP tell each other over the backup NIC [D].

Each is one WRITE with immediate into a mailbox of the peer. The immediate is the receive counter's
low 32 bits; the 32 bytes hold all of it.
"""

from __future__ import annotations

import dataclasses
import enum
import struct

from softroce_lab.errors import LabError

BYTES = 32
_FORMAT = struct.Struct(">4sBxxxIIQII")
_MAGIC = b"SHF1"
PSN_MASK = 0xFFFFFF


class Kind(enum.IntEnum):
    """What a message is for."""

    MOVE = 1  # the sender's receives are in `epoch`; of earlier ones it executes nothing more
    DRAINED = 2  # the sender has no request in flight in `epoch`, and posts none
    RESUME = 3  # it posts in `epoch` after all
    FAILED = 4  # it has surfaced an error, and is gone


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

    def encode(self, sequence: int) -> bytes:
        """The 32 bytes of it, as number `sequence` of this direction."""
        return _FORMAT.pack(
            _MAGIC, self.kind, self.epoch, self.next_psn, self.received, sequence & 0xFFFFFFFF, 0
        )


class ProtocolError(LabError):
    """The peer broke the protocol: it cannot be trusted with what is in flight."""


def decode(data: bytes, sequence: int) -> Message:
    """The message in a mailbox; ProtocolError, if it is not number `sequence`."""
    magic, kind, epoch, psn, received, number, _ = _FORMAT.unpack(data)
    if magic != _MAGIC or number != sequence & 0xFFFFFFFF or kind not in list(Kind):
        raise ProtocolError(f"the mailbox does not hold message {sequence} of the peer")
    return Message(Kind(kind), epoch, received, psn & PSN_MASK)
