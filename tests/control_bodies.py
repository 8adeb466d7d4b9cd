# SPDX-License-Identifier: GPL-2.0-or-later
"""Bodies of control messages, as engines write them (native/transport/bodies.hpp)."""

import dataclasses
import struct

import numpy as np

from softroce_lab.transports import control

TYPES = {each: number for number, each in control.MESSAGES.items()}
ENTRIES = {"ids": ">I", "words": ">IIQ", "messages": ">IHHI", "receives": ">IHHII"}
FIELDS = {
    control.Nack: ">BHI16I",
    control.Rnr: ">IHHI",
    control.Refused: ">IHHIBB",
    control.Sack: ">IHHI",
    control.Chunks: ">IHHIH",
    control.Clear: ">BHIIQ",
}


def encode(message, most_bytes=2008):
    """The body of a message, with as much of its list or set as fits."""
    fields = {each.name: getattr(message, each.name) for each in dataclasses.fields(message)}
    listed = {name: fields.pop(name) for name in ENTRIES if name in fields}
    missing = fields.pop("missing", None)
    why = fields.pop("why", None)
    if isinstance(message, control.Nack):
        first = len(message.trimmed) << 2 | message.flags
        values = [first, message.newest_probe, message.end, message.settled]
    else:
        values = fields.values()
    head = bytes([TYPES[type(message)]])
    if values:
        head += struct.pack(FIELDS[type(message)], *flat(values))
    for path, number in fields.pop("trimmed", ()):
        head += struct.pack(">I", path << 24 | number)
    for name, entries in listed.items():
        most = (most_bytes - len(head)) // struct.calcsize(ENTRIES[name])
        rows = entries[:most] if name != "ids" else [(each,) for each in entries[:most]]
        head += b"".join(struct.pack(ENTRIES[name], *flat(row)) for row in rows)
    if why is not None:
        head += bytes([why])
    return head if missing is None else head + of_set(missing, most_bytes - len(head))


def flat(values):
    for value in values:
        yield from value if isinstance(value, tuple) else (value,)


def of_set(missing, most_bytes):
    """The shorter of plain bits and run lengths."""
    bits = missing.bits[: 8 * (most_bytes - 9)]
    plain = np.packbits(bits, bitorder="little").tobytes()
    ends = [*(np.flatnonzero(bits[1:] != bits[:-1]) + 1).tolist(), len(bits)]
    runs = bytes(len(bits) > 0 and not bits[0])  # the first run is of missing ones
    runs += b"".join(map(leb128, np.diff(ends, prepend=0).tolist()))
    form, body = min(((1, runs), (0, plain)), key=lambda each: len(each[1]))
    return struct.pack(">BII", form, missing.base, len(bits)) + body


def leb128(value):
    return bytes([value & 0x7F | 0x80]) + leb128(value >> 7) if value > 0x7F else bytes([value])
