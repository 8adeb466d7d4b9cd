# SPDX-License-Identifier: GPL-2.0-or-later
"""Capture files made by hand, in either byte order: a writer that is not the lab's.

By draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng; tests hold it against scapy's readers.
"""

from __future__ import annotations

import dataclasses
import struct

ETHERNET = 1
SECTION, INTERFACE, OBSOLETE, SIMPLE, NAMES, STATISTICS, ENHANCED = 0x0A0D0D0A, 1, 2, 3, 4, 5, 6
COMMENT, IF_NAME, IF_TSRESOL, IF_TSOFFSET = 1, 2, 9, 14
ISB_RECEIVED, ISB_DROPPED = 4, 5


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


@dataclasses.dataclass(frozen=True)
class Pcap:
    """A pcap file; `order` is struct's."""

    order: str = "<"
    nanoseconds: bool = True
    link_type: int = ETHERNET
    snap: int = 262144

    def header(self) -> bytes:
        magic = 0xA1B23C4D if self.nanoseconds else 0xA1B2C3D4
        return struct.pack(f"{self.order}IHHiIII", magic, 2, 4, 0, 0, self.snap, self.link_type)

    def packet(self, time_ns: int, frame: bytes, length: int | None = None) -> bytes:
        seconds, ns = divmod(time_ns, 10**9)
        fraction = ns if self.nanoseconds else ns // 1000
        length = len(frame) if length is None else length
        return struct.pack(f"{self.order}IIII", seconds, fraction, len(frame), length) + frame

    def file(self, frames: list[bytes], begin_ns: int = 0) -> bytes:
        """Packets a microsecond apart."""
        packets = (self.packet(begin_ns + 1000 * i, frame) for i, frame in enumerate(frames))
        return self.header() + b"".join(packets)


@dataclasses.dataclass(frozen=True)
class Pcapng:
    """Blocks of a pcapng section."""

    order: str = "<"

    def pack(self, layout: str, *values: int) -> bytes:
        return struct.pack(self.order + layout, *values)

    def block(self, kind: int, body: bytes) -> bytes:
        length = self.pack("I", len(padded(body)) + 12)
        return self.pack("I", kind) + length + padded(body) + length

    def options(self, options: list[tuple[int, bytes]]) -> bytes:
        each = [self.pack("HH", code, len(value)) + padded(value) for code, value in options]
        return b"".join([*each, self.pack("HH", 0, 0)]) if each else b""

    def section(self) -> bytes:
        return self.block(SECTION, self.pack("IHHq", 0x1A2B3C4D, 1, 0, -1))

    def interface(
        self, *options: tuple[int, bytes], link_type: int = ETHERNET, snap: int = 0
    ) -> bytes:
        body = self.pack("HHI", link_type, 0, snap)
        return self.block(INTERFACE, body + self.options(list(options)))

    def enhanced(
        self,
        ticks: int,
        frame: bytes,
        *comments: bytes,
        interface: int = 0,
        length: int | None = None,
    ) -> bytes:
        length = len(frame) if length is None else length
        head = self.pack("IIIII", interface, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), length)
        options = self.options([(COMMENT, comment) for comment in comments])
        return self.block(ENHANCED, head + padded(frame) + options)

    def obsolete(self, ticks: int, frame: bytes, interface: int = 0) -> bytes:
        times = (ticks >> 32, ticks & 0xFFFFFFFF)
        head = self.pack("HHIIII", interface, 0, *times, len(frame), len(frame))
        return self.block(OBSOLETE, head + padded(frame))

    def simple(self, frame: bytes, length: int | None = None) -> bytes:
        head = self.pack("I", len(frame) if length is None else length)
        return self.block(SIMPLE, head + padded(frame))

    def statistics(self, interface: int, received: int, dropped: int) -> bytes:
        options = [
            (ISB_RECEIVED, self.pack("Q", received)),
            (ISB_DROPPED, self.pack("Q", dropped)),
        ]
        return self.block(STATISTICS, self.pack("III", interface, 0, 0) + self.options(options))

    def file(self, *blocks: bytes) -> bytes:
        """A section with an interface that counts nanoseconds."""
        return self.section() + self.interface((IF_TSRESOL, b"\x09")) + b"".join(blocks)
