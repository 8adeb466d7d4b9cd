# SPDX-License-Identifier: GPL-2.0-or-later
"""Feedback of receivers of `irn`, `srnic` and `rack_tlp` (native/transport/bodies.hpp), parsed."""

from __future__ import annotations

import dataclasses
import struct

IRN, SRNIC, RACK_TLP = "irn", "srnic", "rack_tlp"
TRANSPORTS = (IRN, SRNIC, RACK_TLP)
_SACKING = (SRNIC, RACK_TLP)

_ACK, _NACK, _SACK = 16, 17, 18
_HEAD, _PACKET, _WORD = struct.Struct(">BIII"), struct.Struct(">I"), struct.Struct(">IQ")
_WORD_BITS = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Feedback:
    """PACKET_ACK, PACKET_NACK or PACKET_SACK: packets [0, cumulative) are here, and these."""

    id: int
    cumulative: int
    packets: tuple[int, ...]  # beyond those; none in a PACKET_ACK
    transports: tuple[str, ...]  # that send it, the usual one first; none: all of TRANSPORTS

    @property
    def end(self) -> int:
        """Behind the highest packet that is here."""
        return max(self.cumulative, *(packet + 1 for packet in self.packets), 0)


def parse(body: bytes) -> Feedback | None:
    """None: it is something else."""
    if len(body) < _HEAD.size:
        return None
    kind, id_, cumulative, _ = _HEAD.unpack_from(body)
    rest = body[_HEAD.size :]
    if kind == _ACK and not rest:
        return Feedback(id_, cumulative, (), ())
    if kind == _NACK and len(rest) == _PACKET.size:
        return Feedback(id_, cumulative, _PACKET.unpack(rest), (IRN,))
    if kind == _SACK and len(rest) == _WORD.size:
        base, bits = _WORD.unpack(rest)
        there = (base + n for n in range(_WORD_BITS) if bits >> n & 1)
        return Feedback(id_, cumulative, tuple(there), _SACKING)
    return None
