# SPDX-License-Identifier: GPL-2.0-or-later
"""Every opcode of the BTH: its name, and the extension headers behind it (IBA 9.2.1, table 38).

Names are Wireshark's, less the services' long forms. XRC (annex A14), FLUSH and ATOMIC WRITE (annex
A19) and the CNP (annex A17.9.3) are there as well; 0xC0 to 0xFF are the manufacturers'.
"""

from __future__ import annotations

import dataclasses

RC, UC, RD, UD, XRC = 0x00, 0x20, 0x40, 0x60, 0xA0
CNP = 0x81
UD_SEND_ONLY = UD | 0x04
RC_SEND_ONLY = RC | 0x04
UC_WRITE_ONLY_IMMEDIATE = UC | 0x0B


@dataclasses.dataclass(frozen=True)
class Opcode:
    """An opcode, the names of its extension headers in their order, and whether data follow."""

    number: int
    name: str
    headers: tuple[str, ...] = ()
    payload: bool = True


# Operation -> name, headers on RC, whether there is a payload.
_OPERATIONS: dict[int, tuple[str, tuple[str, ...], bool]] = {
    0x00: ("SEND First", (), True),
    0x01: ("SEND Middle", (), True),
    0x02: ("SEND Last", (), True),
    0x03: ("SEND Last with Immediate", ("ImmDt",), True),
    0x04: ("SEND Only", (), True),
    0x05: ("SEND Only with Immediate", ("ImmDt",), True),
    0x06: ("RDMA WRITE First", ("RETH",), True),
    0x07: ("RDMA WRITE Middle", (), True),
    0x08: ("RDMA WRITE Last", (), True),
    0x09: ("RDMA WRITE Last with Immediate", ("ImmDt",), True),
    0x0A: ("RDMA WRITE Only", ("RETH",), True),
    0x0B: ("RDMA WRITE Only with Immediate", ("RETH", "ImmDt"), True),
    0x0C: ("RDMA READ Request", ("RETH",), False),
    0x0D: ("RDMA READ response First", ("AETH",), True),
    0x0E: ("RDMA READ response Middle", (), True),
    0x0F: ("RDMA READ response Last", ("AETH",), True),
    0x10: ("RDMA READ response Only", ("AETH",), True),
    0x11: ("Acknowledge", ("AETH",), False),
    0x12: ("ATOMIC Acknowledge", ("AETH", "AtomicAckETH"), False),
    0x13: ("CmpSwap", ("AtomicETH",), False),
    0x14: ("FetchAdd", ("AtomicETH",), False),
    0x15: ("RESYNC", (), False),
    0x16: ("SEND Last with Invalidate", ("IETH",), True),
    0x17: ("SEND Only with Invalidate", ("IETH",), True),
    0x1C: ("FLUSH", ("FETH", "RETH"), False),
    0x1D: ("ATOMIC WRITE", ("RETH",), True),
}
_RESPONSES = range(0x0D, 0x13)
_RESYNC = 0x15
_UC_ENDS = 0x0C  # the first operation that UC has not
_INVALIDATE = (0x16, 0x17)
_PERSISTENT = (0x1C, 0x1D)


def _opcode(service: str, base: int, operation: int, prefix: tuple[str, ...] = ()) -> Opcode:
    name, headers, payload = _OPERATIONS[operation]
    return Opcode(base | operation, f"{service} {name}", prefix + headers, payload)


def _reliable_datagram(operation: int) -> Opcode:
    prefix = ("RDETH",) if operation in _RESPONSES else ("RDETH", "DETH")
    return _opcode("RD", RD, operation, prefix)


def _extended(operation: int) -> Opcode:
    return _opcode("XRC", XRC, operation, () if operation in _RESPONSES else ("XRCETH",))


def _all() -> tuple[Opcode, ...]:
    everywhere = [each for each in _OPERATIONS if each not in (_RESYNC, *_PERSISTENT)]
    return (
        *(_opcode("RC", RC, each) for each in (*everywhere, *_PERSISTENT)),
        *(_opcode("UC", UC, each) for each in everywhere if each < _UC_ENDS),
        *(_reliable_datagram(each) for each in (*everywhere, _RESYNC) if each not in _INVALIDATE),
        *(_opcode("UD", UD, each, ("DETH",)) for each in (0x04, 0x05)),
        *(_extended(each) for each in everywhere),
        Opcode(CNP, "CNP", ("CNPReserved",), payload=False),
    )


OPCODES: dict[int, Opcode] = {each.number: each for each in _all()}
"""Number -> opcode; a number that is not there is reserved or a manufacturer's."""


# Opcodes of whole messages; of those that fit, the first one is meant.
_WHOLE = (0x04, 0x05, 0x0A, 0x0B, 0x11, 0x10, 0x12, 0x13, 0x17, 0x1C)


def implied(headers: tuple[str, ...], *, payload: bool) -> int | None:
    """The opcode of a whole message with these extension headers; None: there is no such opcode."""
    for base in (RC, UD, XRC, RD):
        for operation in _WHOLE:
            opcode = OPCODES.get(base | operation)
            if opcode and opcode.headers == headers and (opcode.payload or not payload):
                return opcode.number
    return CNP if headers == OPCODES[CNP].headers and not payload else None
