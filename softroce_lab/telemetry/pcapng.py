# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes captured packets as pcapng (draft-ietf-opsawg-pcapng), one interface per directed link."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from softroce_lab.telemetry.drops import DONE, CapturedPacket

_SECTION = 0x0A0D0D0A
_INTERFACE = 1
_ENHANCED_PACKET = 6

_END_OF_OPTIONS = 0
_COMMENT = 1
_IF_NAME = 2
_USER_APPLICATION = 4
_IF_TSRESOL = 9

_ETHERNET = 1
_NANOSECONDS = b"\x09"  # if_tsresol: 10**-9 s


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _padded(value)


def _options(*options: bytes) -> bytes:
    return b"".join(options) + struct.pack("<HH", _END_OF_OPTIONS, 0) if options else b""


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length


def _section() -> bytes:
    any_length = -1
    head = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, any_length)
    return _block(_SECTION, head + _options(_option(_USER_APPLICATION, b"softroce_lab")))


def _interface(name: str) -> bytes:
    no_snap_limit = 0
    head = struct.pack("<HHI", _ETHERNET, 0, no_snap_limit)
    options = _options(_option(_IF_NAME, name.encode()), _option(_IF_TSRESOL, _NANOSECONDS))
    return _block(_INTERFACE, head + options)


def _packet(interface: int, time_ns: int, packet: CapturedPacket, comment: str | None) -> bytes:
    high, low = divmod(time_ns, 1 << 32)
    head = struct.pack("<IIIII", interface, high, low, len(packet.data), packet.length)
    options = _options(_option(_COMMENT, comment.encode())) if comment is not None else b""
    return _block(_ENHANCED_PACKET, head + _padded(packet.data) + options)


def _comment(packet: CapturedPacket, rule_names: Mapping[int, str]) -> str | None:
    """What faults did to the packet."""
    if packet.rule_id is not None:
        return f"dropped: {rule_names.get(packet.rule_id, f'rule {packet.rule_id}')}"
    done = [DONE[effect] for effect in DONE if packet.effects & effect]
    return ", ".join(done) if done else None


def write(
    path: Path,
    packets: Iterable[CapturedPacket],
    *,
    link_names: Mapping[int, str],
    rule_names: Mapping[int, str],
    epoch_ns: int = 0,
) -> int:
    """Write `packets` to a new file; returns how many there were.

    `link_names` names the directed links that the file may hold, and `rule_names` what dropped
    packets, by the rules' ids. `epoch_ns` is what CLOCK_REALTIME was at zero of CLOCK_MONOTONIC.
    KeyError for a packet of another link.
    """
    interfaces = {link: number for number, link in enumerate(link_names)}
    written = 0
    with path.open("wb") as file:
        file.write(_section() + b"".join(_interface(name) for name in link_names.values()))
        for packet in packets:
            comment = _comment(packet, rule_names)
            interface = interfaces[packet.directed_link]
            file.write(_packet(interface, packet.time_ns + epoch_ns, packet, comment))
            written += 1
    return written
