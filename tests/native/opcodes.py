# SPDX-License-Identifier: GPL-2.0-or-later
"""Every opcode and its headers as IBA has them (tables 38 and 39, 9.3), by hand: not the engine's.

`frame_of` makes the frame of which `_native.decode_frame` should give the fields.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from tests.native.frames import ETHERNET, ICRC, UDP, V4, V6, seal
from tests.native.frames import ROCE_PORT as PORT

IB = "infiniband."
EXTENSIONS = {  # name -> (field, bytes) in their order on the wire; None: reserved
    "deth": (("deth.q_key", 4), (None, 1), ("deth.srcqp", 3)),
    "reth": (("reth.va", 8), ("reth.r_key", 4), ("reth.dmalen", 4)),
    "atomiceth": (
        ("atomiceth.va", 8),
        ("atomiceth.r_key", 4),
        ("atomiceth.swapdt", 8),
        ("atomiceth.cmpdt", 8),
    ),
    "aeth": (("aeth.syndrome", 1), ("aeth.msn", 3)),
    "atomicacketh": (("atomicacketh.origremdt", 8),),
    "immdt": (("immdt", 4),),
    "ieth": (("ieth", 4),),
    "cnp": ((None, 16),),
}


@dataclasses.dataclass(frozen=True)
class Opcode:
    """One of the BTH's opcodes."""

    number: int
    name: str
    extensions: tuple[str, ...] = ()
    payload: bool = True

    @property
    def fields(self) -> list[tuple[str | None, int]]:
        """Fields of the extension headers and their bytes."""
        return [
            (field and IB + field, size)
            for extension in self.extensions
            for field, size in EXTENSIONS[extension]
        ]

    @property
    def extension_bytes(self) -> int:
        return sum(size for _, size in self.fields)


_CONNECTED = [  # RC has all, UC those before the READ request
    (0x00, "SEND First", ()),
    (0x01, "SEND Middle", ()),
    (0x02, "SEND Last", ()),
    (0x03, "SEND Last with Immediate", ("immdt",)),
    (0x04, "SEND Only", ()),
    (0x05, "SEND Only with Immediate", ("immdt",)),
    (0x06, "RDMA WRITE First", ("reth",)),
    (0x07, "RDMA WRITE Middle", ()),
    (0x08, "RDMA WRITE Last", ()),
    (0x09, "RDMA WRITE Last with Immediate", ("immdt",)),
    (0x0A, "RDMA WRITE Only", ("reth",)),
    (0x0B, "RDMA WRITE Only with Immediate", ("reth", "immdt")),
]
OPCODES = {
    each.number: each
    for each in (
        *(Opcode(number, f"RC {name}", extensions) for number, name, extensions in _CONNECTED),
        Opcode(0x0C, "RC RDMA READ Request", ("reth",), payload=False),
        Opcode(0x0D, "RC RDMA READ response First", ("aeth",)),
        Opcode(0x0E, "RC RDMA READ response Middle"),
        Opcode(0x0F, "RC RDMA READ response Last", ("aeth",)),
        Opcode(0x10, "RC RDMA READ response Only", ("aeth",)),
        Opcode(0x11, "RC Acknowledge", ("aeth",), payload=False),
        Opcode(0x12, "RC ATOMIC Acknowledge", ("aeth", "atomicacketh"), payload=False),
        Opcode(0x13, "RC CmpSwap", ("atomiceth",), payload=False),
        Opcode(0x14, "RC FetchAdd", ("atomiceth",), payload=False),
        Opcode(0x16, "RC SEND Last with Invalidate", ("ieth",)),
        Opcode(0x17, "RC SEND Only with Invalidate", ("ieth",)),
        *(
            Opcode(0x20 | number, f"UC {name}", extensions)
            for number, name, extensions in _CONNECTED
        ),
        Opcode(0x64, "UD SEND Only", ("deth",)),
        Opcode(0x65, "UD SEND Only with Immediate", ("deth", "immdt")),
        Opcode(0x81, "CNP", ("cnp",), payload=False),
    )
}


def one_packet(
    opcode: Opcode, payload: bytes | None = None, *, ipv6: bool = False
) -> dict[str, Any]:
    """A packet with a value of its own in every field."""
    draw = random.Random(opcode.number)
    fields = {"eth.dst": 0x020000000002, "eth.src": 0x020000000001}
    if ipv6:
        fields |= {"ipv6.src": 1 << 120 | 5, "ipv6.dst": 1 << 120 | 6}
        fields |= {"ipv6.tclass": 0xAD, "ipv6.flow": 0x12345, "ipv6.hlim": 63}
    else:
        fields |= {"ip.src": 0x0A4D000A, "ip.dst": 0x0A4D000B}
        fields |= {"ip.dsfield": 0xAD, "ip.id": 0x1234, "ip.ttl": 63}
    fields |= {"udp.srcport": 0xC0FE, IB + "bth.opcode": opcode.number}
    fields |= {IB + "bth.se": True, IB + "bth.m": True, IB + "bth.p_key": 0x8001}
    fields |= {IB + "bth.reserved8": 0xC0, IB + "bth.destqp": 0x654321}
    fields |= {IB + "bth.a": True, IB + "bth.psn": 0xFEDCBA}
    fields |= {name: draw.getrandbits(8 * size) for name, size in opcode.fields if name}
    default = b"seven.." if opcode.payload else b""
    return fields | {"payload": default if payload is None else payload}


def sealed_lengths(frame: bytes, *, ipv6: bool) -> bytes:
    """The frame with the lengths and the ICRC that belong to its end; IPv4's checksum, too."""
    layout = V6 if ipv6 else V4
    changed = bytearray(frame)
    udp_bytes = len(frame) - layout.udp_at
    changed[layout.udp_at + 4 : layout.udp_at + 6] = udp_bytes.to_bytes(2, "big")
    if ipv6:
        changed[18:20] = udp_bytes.to_bytes(2, "big")
        return seal(bytes(changed))
    changed[16:18] = (layout.ip_bytes + udp_bytes).to_bytes(2, "big")
    changed[24:26] = bytes(2)
    total = sum(int.from_bytes(changed[at : at + 2], "big") for at in range(14, 34, 2))
    changed[24:26] = (0xFFFF - (total % 0xFFFF or 0xFFFF)).to_bytes(2, "big")
    return seal(bytes(changed))


def frame_of(fields: dict[str, Any]) -> bytes:
    """The frame with these fields, all of which must be there."""
    ipv6 = "ipv6.dst" in fields
    opcode = OPCODES[fields[IB + "bth.opcode"]]
    payload = fields["payload"]
    pad = -len(payload) % 4
    flags = fields[IB + "bth.se"] << 7 | fields[IB + "bth.m"] << 6 | pad << 4
    frame = b"".join(
        (
            fields["eth.dst"].to_bytes(6, "big"),
            fields["eth.src"].to_bytes(6, "big"),
            (V6 if ipv6 else V4).ethertype.to_bytes(2, "big"),
            _ipv6(fields) if ipv6 else _ipv4(fields),
            fields["udp.srcport"].to_bytes(2, "big") + PORT.to_bytes(2, "big") + bytes(4),
            bytes((opcode.number, flags)),
            fields[IB + "bth.p_key"].to_bytes(2, "big"),
            bytes((fields[IB + "bth.reserved8"],)),
            fields[IB + "bth.destqp"].to_bytes(3, "big"),
            bytes((fields[IB + "bth.a"] << 7,)),
            fields[IB + "bth.psn"].to_bytes(3, "big"),
            *((fields[name] if name else 0).to_bytes(size, "big") for name, size in opcode.fields),
            payload,
            bytes(pad + ICRC),
        )
    )
    return sealed_lengths(frame, ipv6=ipv6)


def _ipv4(fields: dict[str, Any]) -> bytes:
    return b"".join(
        (
            bytes((0x45, fields["ip.dsfield"], 0, 0)),
            fields["ip.id"].to_bytes(2, "big"),
            bytes((0x40, 0, fields["ip.ttl"], 17, 0, 0)),
            fields["ip.src"].to_bytes(4, "big"),
            fields["ip.dst"].to_bytes(4, "big"),
        )
    )


def _ipv6(fields: dict[str, Any]) -> bytes:
    return b"".join(
        (
            (6 << 28 | fields["ipv6.tclass"] << 20 | fields["ipv6.flow"]).to_bytes(4, "big"),
            bytes((0, 0, 17, fields["ipv6.hlim"])),
            fields["ipv6.src"].to_bytes(16, "big"),
            fields["ipv6.dst"].to_bytes(16, "big"),
        )
    )


def least_bytes(*, ipv6: bool) -> int:
    """Of a frame with a BTH and an ICRC, and nothing between them."""
    return ETHERNET + (V6 if ipv6 else V4).ip_bytes + UDP + 12 + ICRC
