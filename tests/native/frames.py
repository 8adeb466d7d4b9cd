# SPDX-License-Identifier: GPL-2.0-or-later
"""RoCEv2 frames made by hand, right or wrong in any field: an encoder that is not the engine's.

The ICRC is zlib's CRC-32 over the packet with ones where routers may change it (IBA 7.8.1, annex
A17.3.2).
"""

from __future__ import annotations

import dataclasses
import struct
import zlib
from pathlib import Path

from scapy.utils import RawPcapReader

CAPTURES = Path(__file__).parents[1] / "captures"

ETHERNET, UDP, BTH, DETH, LAB, OPERATION, ICRC = 14, 8, 12, 8, 40, 24, 4
IP_AT = 14
SPORT_BASE = 0xC000
ROCE_PORT = 4791
UD_SEND_ONLY = 0x64
DATA_QP, RECOVERY_QP = 0x11, 0x12
DATA, CONTROL, REPORT, PATH_PROBE, PARITY = range(5)


def captured(name: str) -> list[bytes]:
    """The frames of a capture."""
    with RawPcapReader(str(CAPTURES / f"{name}.pcap")) as reader:
        return [bytes(data) for data, _ in reader]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where in a frame its headers begin, and what of IP's routers may change."""

    ethertype: int
    ip_bytes: int
    ip_variant: dict[int, int]  # byte of the header -> bits that the ICRC does not cover

    @property
    def udp_at(self) -> int:
        return IP_AT + self.ip_bytes

    @property
    def bth_at(self) -> int:
        return self.udp_at + UDP

    @property
    def lab_at(self) -> int:
        return self.bth_at + BTH + DETH

    @property
    def variant(self) -> dict[int, int]:
        """Byte of the frame -> bits that the ICRC does not cover."""
        return {IP_AT + at: bits for at, bits in self.ip_variant.items()} | {
            self.udp_at + 6: 0xFF,  # UDP checksum
            self.udp_at + 7: 0xFF,
            self.bth_at + 4: 0xFF,  # FECN, BECN, resv6
        }


V4 = Layout(
    0x0800,
    20,
    {
        1: 0xFF,  # DSCP, ECN
        8: 0xFF,  # TTL
        10: 0xFF,  # header checksum
        11: 0xFF,
    },
)
V6 = Layout(
    0x86DD,
    40,
    {
        0: 0x0F,  # traffic class
        1: 0xFF,  # and flow label
        2: 0xFF,
        3: 0xFF,
        7: 0xFF,  # hop limit
    },
)


def layout(frame: bytes) -> Layout:
    """That of IPv6 if the Ethernet header says so, else IPv4's."""
    return V6 if frame[12:14] == V6.ethertype.to_bytes(2, "big") else V4


def covered(frame: bytes) -> bytes:
    """What the ICRC is the CRC-32 of."""
    fixed = bytearray(frame[IP_AT:-ICRC])
    for at, bits in layout(frame).variant.items():
        fixed[at - IP_AT] |= bits
    return b"\xff" * 8 + fixed


def icrc(frame: bytes) -> int:
    """The ICRC that the last four bytes of the frame should hold, little-endian."""
    return zlib.crc32(covered(frame))


def seal(frame: bytes) -> bytes:
    """The frame with a right ICRC."""
    return frame[:-ICRC] + icrc(frame).to_bytes(ICRC, "little")


def flip(frame: bytes, bit: int) -> bytes:
    """The frame with one bit turned over."""
    changed = bytearray(frame)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@dataclasses.dataclass(frozen=True)
class Lab:
    """Our header, struct lab_hdr of xdp/lab_wire.h."""

    kind: int = DATA
    path: int = 0
    attempt: int = 0
    operation: int = 0
    step: int = 0
    message: int = 0
    message_id: int = 0
    index: int = 0
    count: int = 1
    code: int = 0
    length: int = 0
    stamp_ns: int = 0
    epoch: int = 0
    number: int = 0
    srtt: int = 0
    rttvar: int = 0
    version: int = 3
    trimmed: int = 0

    def encode(self) -> bytes:
        return struct.pack(
            ">BBHHHIIIIIIIHH",
            self.version << 4 | self.trimmed << 3 | self.kind,
            self.path,
            self.attempt,
            self.operation,
            self.step,
            self.message,
            self.message_id,
            self.index,
            self.code << 24 | self.count,
            self.length,
            self.stamp_ns,
            self.epoch << 24 | self.number,
            self.srtt,
            self.rttvar,
        )


@dataclasses.dataclass(frozen=True)
class Operation:
    """What follows our header if its version is 4: struct lab_operation of xdp/lab_wire.h."""

    verb: int = 1  # with 0x80: solicited
    receive: int = 0
    connection: int = 0
    remote_address: int = 0
    rkey: int = 0
    argument: int = 0
    reserved: int = 0

    def encode(self) -> bytes:
        return struct.pack(
            ">IIQII",
            self.verb << 24 | self.receive,
            self.reserved << 24 | self.connection,
            self.remote_address,
            self.rkey,
            self.argument,
        )


@dataclasses.dataclass(frozen=True)
class Frame:
    """A UD SEND-only frame; `None`: what the rest calls for.

    Addresses are numbers as `ipaddress.ip_address` takes them: below 2**32 they are IPv4's.
    """

    source_ip: int = 0x0A000001
    destination_ip: int = 0x0A000002
    source_mac: int = 0x020000000001
    destination_mac: int = 0x020000000002
    ecn: int = 2  # capable of it, unmarked
    source_port: int | None = None
    opcode: int = UD_SEND_ONLY
    flags: int = 0  # of the BTH: solicited 0x80, migration 0x40, transport version 0x0F
    pkey: int = 0xFFFF
    destination_qp: int = DATA_QP
    psn: int = 0
    qkey: int = 0
    source_qp: int = DATA_QP
    lab: Lab | None = None
    lab_operation: Operation | None = None  # `lab` needs version 4 then
    payload: bytes = b""

    def but(self, **fields) -> Frame:
        """The same frame with other fields; those of `Lab` go into our header."""
        own = {field.name for field in dataclasses.fields(self)}
        lab = {name: value for name, value in fields.items() if name not in own}
        changed = {name: value for name, value in fields.items() if name in own}
        if lab:
            changed["lab"] = dataclasses.replace(self.lab, **lab)
        return dataclasses.replace(self, **changed)

    def encode(self) -> bytes:
        head = self.lab.encode() if self.lab else b""
        head += self.lab_operation.encode() if self.lab_operation else b""
        data = head + self.payload
        pad = -len(data) % 4
        udp_bytes = UDP + BTH + DETH + len(data) + pad + ICRC
        path = self.lab.path if self.lab else 0
        port = SPORT_BASE + path if self.source_port is None else self.source_port
        layout = V6 if max(self.source_ip, self.destination_ip) >> 32 else V4
        frame = (
            self.destination_mac.to_bytes(6, "big")
            + self.source_mac.to_bytes(6, "big")
            + layout.ethertype.to_bytes(2, "big")
            + (self._ipv4 if layout is V4 else self._ipv6)(udp_bytes)
            + struct.pack(">HHHH", port, ROCE_PORT, udp_bytes, 0)
            + struct.pack(
                ">BBHII",
                self.opcode,
                self.flags | pad << 4,
                self.pkey,
                self.destination_qp,
                self.psn & 0xFFFFFF,
            )
            + struct.pack(">II", self.qkey, self.source_qp)
            + data
            + bytes(pad + ICRC)
        )
        return seal(frame)

    def _ipv4(self, udp_bytes: int) -> bytes:
        ip = struct.pack(
            ">BBHHHBBHII", 0x45, self.ecn, 20 + udp_bytes, 0, 0x4000, 64, 17, 0,
            self.source_ip, self.destination_ip,
        )  # fmt: skip
        total = sum(struct.unpack(">10H", ip))
        total = (total & 0xFFFF) + (total >> 16)
        checksum = ~(total + (total >> 16)) & 0xFFFF
        return ip[:10] + checksum.to_bytes(2, "big") + ip[12:]

    def _ipv6(self, udp_bytes: int) -> bytes:
        head = struct.pack(">IHBB", 6 << 28 | self.ecn << 20, udp_bytes, 17, 64)
        return head + self.source_ip.to_bytes(16, "big") + self.destination_ip.to_bytes(16, "big")
