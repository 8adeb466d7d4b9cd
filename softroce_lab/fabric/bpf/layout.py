# SPDX-License-Identifier: GPL-2.0-or-later
"""Keys and values of the XDP programs' maps: structs of xdp/lab_maps.h."""

from __future__ import annotations

import ipaddress
import operator
import socket
import struct
from collections.abc import Sequence

from softroce_lab.structs import CONSTANTS, Struct, enumerators

GROUP_PORTS: int = CONSTANTS["LAB_GROUP_PORTS"]  # equal-cost ports of one route
SHARES: int = CONSTANTS["LAB_SHARES"]  # of a host's port
FIRST_SHARE_IFINDEX: int = CONSTANTS["LAB_FIRST_SHARE_IFINDEX"]

FATE_AT_INGRESS, SPRAY, ADAPTIVE = enumerators("lab_port_flags").values()

_ARMED_SLOT: int = CONSTANTS["LAB_ARMED_SLOT"]
_ARMED_RULES: int = CONSTANTS["LAB_ARMED_RULES"]
_ARMED_SHAPED: int = CONSTANTS["LAB_ARMED_SHAPED"]
_GENERATION = 8
_WORD = 1 << 32

_PORT = Struct("lab_port")
_EXACT_KEY = Struct("lab_exact_key")
_PREFIX_KEY = Struct("lab_prefix_key")
_GROUP = Struct("lab_group")
_LINK = Struct("lab_link")
_TAP = Struct("lab_tap")
_BACKLOG = Struct("lab_backlog")
TIMELINE = Struct("lab_timeline")
_COUNTERS = Struct("lab_counters")


def u32(number: int) -> bytes:
    """Key of an array; value of a device map."""
    return struct.pack("=I", number)


def u64(number: int) -> bytes:
    return struct.pack("=Q", number)


def mac_bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def port(*, address: str | None, mac: str, peer_mac: str, **numbers: int) -> bytes:
    return _PORT.pack(
        address=int(ipaddress.IPv4Address(address)) if address else 0,
        mac=mac_bytes(mac),
        peer_mac=mac_bytes(peer_mac),
        **numbers,
    )


def exact_key(node: int, prefix: ipaddress.IPv4Network) -> bytes:
    return _EXACT_KEY.pack(node=node, address=int(prefix.network_address))


def prefix_key(node: int, prefix: ipaddress.IPv4Network) -> bytes:
    return _PREFIX_KEY.pack(
        bits=32 + prefix.prefixlen,
        node=socket.htonl(node),
        address=socket.htonl(int(prefix.network_address)),
    )


def group(ifindexes: Sequence[int]) -> bytes:
    """struct lab_group, of the first 64 ports if there are more."""
    taken = ifindexes[:GROUP_PORTS]
    return _GROUP.pack(count=len(taken), port=b"".join(map(u32, taken)))


def missed_of(tap: bytes) -> int:
    return int(_TAP.unpack(tap).missed)


def waiting_bytes_of(backlog: bytes) -> int:
    return int(_BACKLOG.unpack(backlog).waiting_bytes)


class LinkState(_LINK.record):  # type: ignore[misc]
    """struct lab_link: the generation word of the faults."""

    __slots__ = ()

    @property
    def slot(self) -> int:
        return int(self.armed & _ARMED_SLOT)

    @property
    def shaped(self) -> bool:
        return bool(self.armed & _ARMED_SHAPED)

    def flipped(self, *, has_rules: bool, shaped: bool) -> bytes:
        """The map's value with the other slot in use, one generation on."""
        generation = (self.armed & -_GENERATION) + _GENERATION
        flags = (_ARMED_RULES if has_rules else 0) | (_ARMED_SHAPED if shaped else 0)
        word = generation | flags | (self.slot ^ _ARMED_SLOT)
        return _LINK.pack(armed=word % _WORD)

    @classmethod
    def unpack(cls, value: bytes) -> LinkState:
        return cls._make(_LINK.unpack(value))


class PortCounters(_COUNTERS.record):  # type: ignore[misc]
    """struct lab_counters, summed over the CPUs."""

    __slots__ = ()

    def __sub__(self, before: PortCounters) -> PortCounters:
        return self._make(map(operator.sub, self, before))

    @classmethod
    def unpack(cls, value: bytes) -> PortCounters:
        return cls._make(map(sum, zip(*_COUNTERS.unpack_all(value), strict=True)))
