# SPDX-License-Identifier: GPL-2.0-or-later
"""RDMA IP CM service (IBA annex A11): TCP-like ports as service ids, addresses in private data."""

from __future__ import annotations

import dataclasses
import enum
from ipaddress import IPv4Address, IPv6Address
from typing import ClassVar, TypeAlias

from softroce_lab.programs.rdmacm.layout import LayoutError, Record, at

Address: TypeAlias = IPv4Address | IPv6Address

HEADER_BYTES = 36


class rdma_port_space(enum.IntEnum):  # noqa: N801 - the C name, as pyverbs has it
    """Port spaces of rdma_cma.h."""

    RDMA_PS_IPOIB = 0x0002
    RDMA_PS_TCP = 0x0106
    RDMA_PS_UDP = 0x0111
    RDMA_PS_IB = 0x013F


def service_id(port_space: int, port: int) -> int:
    """The service id of a port: 01, the protocol, the port (A11.2.2), as Linux forms it."""
    return port_space << 16 | port


@dataclasses.dataclass(frozen=True)
class _Header(Record):
    """`struct cma_hdr` of Linux's cma.c; A11.5 calls it the IP addressing information."""

    SIZE_BYTES: ClassVar[int] = HEADER_BYTES

    cma_version: int = at(0, 8)
    ip_version: int = at(1, 4)
    port: int = at(2, 16)
    source: int = at(4, 128)
    destination: int = at(20, 128)


@dataclasses.dataclass(frozen=True)
class IpHeader:
    """Source and destination: the head of the private data of a REQ or SIDR_REQ."""

    port: int  # of the source
    source: Address
    destination: Address

    def build(self) -> bytes:
        """36 octets; an IPv4 address is in the last four of its sixteen."""
        return _Header(
            ip_version=self.source.version,
            port=self.port,
            source=int(self.source),
            destination=int(self.destination),
        ).build()

    @classmethod
    def parse(cls, private_data: bytes) -> IpHeader:
        """The head of `private_data`; LayoutError if it is none."""
        header = _Header.parse(private_data[:HEADER_BYTES])
        if header.cma_version != 0 or header.ip_version not in (4, 6):
            raise LayoutError(
                f"version {header.cma_version} with IPv{header.ip_version} is no IP CM header"
            )
        kind = IPv4Address if header.ip_version == 4 else IPv6Address
        bits = 32 if header.ip_version == 4 else 128
        if (header.source | header.destination) >> bits:
            raise LayoutError("an IPv4 address longer than 32 bits")
        return cls(header.port, kind(header.source), kind(header.destination))


def gid_of(address: Address) -> IPv6Address:
    """The GID of a RoCEv2 port with this address (annex A17.4.5)."""
    if isinstance(address, IPv6Address):
        return address
    return IPv6Address((0xFFFF << 32) | int(address))


def address_of(gid: IPv6Address) -> Address:
    """The address that a GID stands for."""
    return gid.ipv4_mapped or gid
