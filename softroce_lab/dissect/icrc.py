# SPDX-License-Identifier: GPL-2.0-or-later
"""The invariant CRC of RoCEv2 (IBA 7.8.1, annex A17.3.2), over IPv4 and IPv6.

CRC-32 of Ethernet over eight bytes of ones (an LRH that is not there), then the packet from its IP
header to the end of the padding, with ones wherever routers may change it. It travels with its low
byte first; as a number it is written here as Wireshark writes it, the first byte in front.
"""

from __future__ import annotations

import zlib

BYTES = 4
_LRH = b"\xff" * 8
# Offset in the header -> bits that do not count.
_IPV4 = {1: 0xFF, 8: 0xFF, 10: 0xFF, 11: 0xFF}  # type of service, TTL, checksum
_IPV6 = {0: 0x0F, 1: 0xFF, 2: 0xFF, 3: 0xFF, 7: 0xFF}  # traffic class, flow label, hop limit
_UDP = {6: 0xFF, 7: 0xFF}  # checksum
_BTH = {4: 0xFF}  # FECN, BECN, resv6


def _masked(header: bytes, mask: dict[int, int]) -> bytes:
    changed = bytearray(header)
    for at, bits in mask.items():
        changed[at] |= bits
    return bytes(changed)


def icrc(ip: bytes, udp: bytes, bth: bytes, rest: bytes) -> int:
    """The ICRC of a packet with these headers; `rest` is all between BTH and ICRC.

    `ip` is the IPv4 header with its options, or the IPv6 header.
    """
    mask = _IPV6 if ip[0] >> 4 == 6 else _IPV4
    covered = _LRH + _masked(ip, mask) + _masked(udp, _UDP) + _masked(bth, _BTH)
    return int.from_bytes(zlib.crc32(covered + rest).to_bytes(BYTES, "little"), "big")
