# SPDX-License-Identifier: GPL-2.0-or-later
"""What the SDK's packets carry: the immediate of a WRITE, and the clear to send.

The paper states the immediate: 10 bits of message, 18 bits of packet offset, 4 bits of the user's
immediate. It has one root key, in which slot i covers [i*M, i*M + M), and points the slot of an
ended receive at a null key. Verbs have no such indirect keys. This project's definition: each use
of a slot has a zero-based key of its own, which the clear to send tells, and which is gone with
`recv_complete`. A late packet names a key that never comes back, and the RNIC drops it.
"""

from __future__ import annotations

import dataclasses
import struct

from softroce_lab.errors import LabError

SLOTS = 1 << 10
MOST_PACKETS = 1 << 18
FRAGMENT_BITS = 4
FRAGMENTS = 8  # of the user's 32 bits
_CLEAR = struct.Struct(">IIQ")  # number in the order of receives, key, length
CLEAR_BYTES = _CLEAR.size


class SdrError(LabError):
    """A call of the SDK makes no sense, or comes too late; nothing was done."""


@dataclasses.dataclass(frozen=True, slots=True)
class Clear:
    """A receive was posted: its sender may begin."""

    number: int
    key: int
    length: int

    def encode(self) -> bytes:
        """The body of the message on the control queue pair."""
        return _CLEAR.pack(self.number % (1 << 32), self.key, self.length)

    @classmethod
    def decode(cls, body: bytes) -> Clear:
        """The message in a body."""
        return cls(*_CLEAR.unpack(body))


def immediate(slot: int, packet: int, user: int) -> int:
    """Of a packet: slot, offset, and its fragment of the user's immediate, lowest bits first."""
    fragment = user >> packet % FRAGMENTS * FRAGMENT_BITS & (1 << FRAGMENT_BITS) - 1
    return slot << 22 | packet << 4 | fragment


def parsed(immediate_: int) -> tuple[int, int, int]:
    """(slot, packet, fragment)."""
    return immediate_ >> 22, immediate_ >> 4 & MOST_PACKETS - 1, immediate_ & 15
