# SPDX-License-Identifier: GPL-2.0-or-later
"""Control messages of striped transports, for users' policies, checks and dissectors.

All of it is this project's definition. Integers are big-endian. Each message is a type byte and

    NACK           trimmed and flags, probe, end, settled numbers, trimmed packets, words
                                                     what is missing: engine to engine
    ACK            ids                               over and known; none: answers a keepalive
    KEEPALIVE      (id, key) pairs                   sender asks their status; none: a keepalive
    RNR            id, key, [why]                    no receive is posted; of an operation, why
    REFUSE         id, key, by receiver, status      the message cannot succeed
    SACK           id, key, [packet set]             what is missing at the receiver
    CHUNKS         id, key, packets of a chunk, [packet set]        the same by chunks (`sdr_sr`)
    CLEAR          channels, (id, key, length) triples              receives that wait: engine to
    engine

A *packet set* is a base, a number of packets from there, and their bits (1 = missing), either
plain or as run lengths (LEB128, alternating, beginning with a run of missing ones), whichever is
shorter. A set that does not fit is cut at the end: what it does not cover is asked for later. A
receiver that no packet has reached knows neither id nor count, and sends no set: all is missing.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.transports.api import Key


class ControlError(ValueError):
    """The body is not a control message."""


NACK = 1
ACK, KEEPALIVE, RNR, REFUSE, SACK, CHUNKS, CLEAR = range(3, 10)
"""A body's first byte."""

_ID_KEY = struct.Struct(">IHHI")
_NACK = struct.Struct(">BBHI16I")
_NACK_WORD = struct.Struct(">IIQ")
_NACK_FLAG_BITS = 2  # above them in the byte: how many trimmed packets it names
_CHUNKS = struct.Struct(">IHHIH")
_CLEAR = struct.Struct(">BBHIIQ")
_CLEARED = struct.Struct(">IHHII")
_SET = struct.Struct(">BII")
_PLAIN, _RUNS = 0, 1

MOST_IN_KEEPALIVE = 64
MOST_ACKED = 256
MOST_IN_SET = 1 << 20  # bounds what a few bytes of run lengths make of a receiver's memory


@dataclasses.dataclass(frozen=True, slots=True)
class PacketSet:
    """Missing packets among [base, base + len(bits))."""

    base: int
    bits: npt.NDArray[np.bool_]

    def indices(self) -> npt.NDArray[np.uint32]:
        """The missing packets' indices, ascending."""
        return (np.flatnonzero(self.bits) + self.base).astype(np.uint32)


@dataclasses.dataclass(slots=True)
class Nack:
    """What a receiver has of the messages and paths (engine/striped/nack.hpp): not for policies."""

    flags: int
    end: int  # ids from here on have not begun
    settled: tuple[int, ...]  # by path: all numbers before have arrived or are lost
    words: tuple[tuple[int, int, int], ...]
    """(id, packet of bit 0, bits set where packets are missing); without bits, all from there."""
    newest_probe: int = 0  # that has come; the lower 16 bits of its sequence number
    trimmed: tuple[tuple[int, int], ...] = ()
    """(path, number) of packets that arrived trimmed since the NACK before."""

    @classmethod
    def decode(cls, body: bytes) -> Nack:
        """The message in a body of this type."""
        _, first, newest_probe, end, *settled = _NACK.unpack_from(body)
        trimmed, flags = divmod(first, 1 << _NACK_FLAG_BITS)
        packets = struct.unpack_from(f">{trimmed}I", body, _NACK.size)
        words = tuple(_NACK_WORD.iter_unpack(body[_NACK.size + 4 * trimmed :]))
        named = tuple((packet >> 24, packet & 0xFFFFFF) for packet in packets)
        return cls(flags, end, tuple(settled), words, newest_probe, named)


@dataclasses.dataclass(slots=True)
class Ack:
    """These messages are complete, or their refusal has been received."""

    ids: tuple[int, ...]

    @classmethod
    def decode(cls, body: bytes) -> Ack:
        """The message in a body of this type."""
        count = _whole(len(body) - 1, 4, MOST_ACKED)
        return cls(struct.unpack_from(f">{count}I", body, 1))


@dataclasses.dataclass(slots=True)
class Keepalive:
    """The sender asks what became of these messages."""

    messages: tuple[tuple[int, Key], ...]

    @classmethod
    def decode(cls, body: bytes) -> Keepalive:
        """The message in a body of this type."""
        count = _whole(len(body) - 1, _ID_KEY.size, MOST_IN_KEEPALIVE)
        fields = [_ID_KEY.unpack_from(body, 1 + i * _ID_KEY.size) for i in range(count)]
        return cls(tuple([(f[0], (f[1], f[2], f[3])) for f in fields]))


@dataclasses.dataclass(slots=True)
class Rnr:
    """No receive is posted for this message."""

    id: int
    key: Key
    why: int | None = None
    """Of an operation: the code of an RNR timer (IBA table 45), or above these `Unready` of
    native/engine/verbs/operation.hpp. None: the message is no operation's."""

    @classmethod
    def decode(cls, body: bytes) -> Rnr:
        """The message in a body of this type."""
        ends = 1 + _ID_KEY.size
        id_, op, step, message = _ID_KEY.unpack(body[1:ends])
        why = body[ends:]
        if len(why) > 1:
            raise ControlError("longer than an RNR with its reason")
        return cls(id_, (op, step, message), why[0] if why else None)


@dataclasses.dataclass(slots=True)
class Refused:
    """The message cannot succeed; both sides fail it with an `ibv_wc_status`."""

    id: int
    key: Key
    by_receiver: bool
    status: int

    @classmethod
    def decode(cls, body: bytes) -> Refused:
        """The message in a body of this type."""
        id_, op, step, message = _ID_KEY.unpack(body[1:-2])
        return cls(id_, (op, step, message), bool(body[-2]), body[-1])


@dataclasses.dataclass(slots=True)
class Sack:
    """What the receiver misses of a message."""

    id: int
    key: Key
    missing: PacketSet | None  # None: no packet has arrived yet

    @classmethod
    def decode(cls, body: bytes) -> Sack:
        """The message in a body of this type."""
        id_, op, step, message = _ID_KEY.unpack_from(body, 1)
        return cls(id_, (op, step, message), _decode_set(body[1 + _ID_KEY.size :]))


@dataclasses.dataclass(slots=True)
class Chunks:
    """Which chunks the receiver misses: all before the base are there.

    Where the base is the first missing one, this is SDR-RDMA's (cumulative chunk, bitmap fragment).
    """

    id: int
    key: Key
    packets: int  # of a chunk
    missing: PacketSet | None  # of chunks; None: no packet has arrived yet

    @classmethod
    def decode(cls, body: bytes) -> Chunks:
        """The message in a body of this type."""
        id_, op, step, message, packets = _CHUNKS.unpack_from(body, 1)
        return cls(id_, (op, step, message), packets, _decode_set(body[1 + _CHUNKS.size :]))


@dataclasses.dataclass(slots=True)
class Clear:
    """Messages are cleared to be sent (engine/striped/clearance.hpp): not for policies."""

    generations: int
    paths: int
    first_qp: int
    root_key: int
    slot_bytes: int
    receives: tuple[tuple[int, Key, int], ...]

    @classmethod
    def decode(cls, body: bytes) -> Clear:
        """The message in a body of this type."""
        _, generations, paths, first_qp, root_key, slot_bytes = _CLEAR.unpack_from(body)
        fields = _CLEARED.iter_unpack(body[_CLEAR.size :])
        receives = tuple([(f[0], (f[1], f[2], f[3]), f[4]) for f in fields])
        return cls(generations, paths, first_qp, root_key, slot_bytes, receives)


Message: TypeAlias = Nack | Ack | Keepalive | Rnr | Refused | Sack | Chunks | Clear
MESSAGES: dict[int, type[Message]] = {
    NACK: Nack,
    ACK: Ack,
    KEEPALIVE: Keepalive,
    RNR: Rnr,
    REFUSE: Refused,
    SACK: Sack,
    CHUNKS: Chunks,
    CLEAR: Clear,
}


def decode(body: bytes) -> Message:
    """The control message in `body`; ControlError if it is none."""
    kind = MESSAGES.get(body[0]) if body else None
    if kind is None:
        raise ControlError("of no type that is known")
    try:
        return kind.decode(body)
    except (struct.error, ValueError, IndexError) as error:
        raise ControlError(str(error)) from error


def _whole(size: int, unit: int, most: int) -> int:
    count, rest = divmod(size, unit)
    if rest or count > most:
        raise ControlError("not a whole number of entries, or too many")
    return count


# ---------------------------------------------------------------- packet sets


def _decode_set(data: bytes) -> PacketSet | None:
    if not data:
        return None
    form, base, count = _SET.unpack_from(data)
    rest = data[_SET.size :]
    if form == _PLAIN:
        if len(rest) != (count + 7) // 8:
            raise ControlError("plain bits of another length than announced")
        bits = np.unpackbits(np.frombuffer(rest, np.uint8), count=count, bitorder="little")
        return PacketSet(base, bits.astype(np.bool_))
    if form != _RUNS or count > MOST_IN_SET:
        raise ControlError("unknown form of a packet set, or absurdly many packets")
    return PacketSet(base, _decode_runs(rest, count))


def _decode_runs(data: bytes, count: int) -> npt.NDArray[np.bool_]:
    bits = np.zeros(count, dtype=np.bool_)
    at, value, shift, missing = 0, 0, 0, True
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte & 0x80:
            if shift > 28:
                raise ControlError("run length too long")
            continue
        if at + value > count:
            raise ControlError("runs longer than announced")
        bits[at : at + value] = missing
        at, value, shift, missing = at + value, 0, 0, not missing
    if at != count or shift:
        raise ControlError("runs shorter than announced")
    return bits
