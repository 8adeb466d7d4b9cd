# SPDX-License-Identifier: GPL-2.0-or-later
"""Addresses: GIDs, routes and address handles, as far as UD has them."""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import ipaddress
from typing import TYPE_CHECKING, Self

from softroce_lab.rnic.base import Closable, table
from softroce_lab.rnic.errors import PyverbsRDMAError, PyverbsUserError

if TYPE_CHECKING:
    from softroce_lab.rnic.cq import WC
    from softroce_lab.rnic.pd import PD

GRH_BYTES = 40
"""Head of every UD receive buffer (IBA 11.4.1.2)."""

_IPV4_AT = 20  # in the GRH area


class GID:
    """A global identifier: an IPv6 address, for RoCEv2 over IPv4 one of ::ffff:0:0/96."""

    def __init__(self, val: str | None = None) -> None:
        try:
            self._address = ipaddress.IPv6Address("::" if val is None else val)
        except ValueError as error:
            raise PyverbsUserError(f"Failed to parse GID {val!r}: {error}") from error

    @classmethod
    def of_address(cls, address: int) -> Self:
        """The GID of a RoCEv2 port with this IP address (annex A17.4.5).

        Numbers mean what they mean to `ipaddress.ip_address`: below 2**32 an IPv4 address.
        """
        ip = ipaddress.ip_address(address)
        return cls(f"::ffff:{ip}" if ip.version == 4 else str(ip))

    @property
    def gid(self) -> str:
        """Eight words of four digits."""
        return str(self)

    @property
    def ipv4(self) -> int | None:
        """The IPv4 address that is mapped, if one is."""
        mapped = self._address.ipv4_mapped
        return None if mapped is None else int(mapped)

    @property
    def address(self) -> int:
        """The IP address, as `of_address` takes it."""
        return int(self._address) if self.ipv4 is None else self.ipv4

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GID) and self._address == other._address

    def __hash__(self) -> int:
        return hash(self._address)

    def __str__(self) -> str:
        return self._address.exploded


@dataclasses.dataclass
class GlobalRoute:
    """Where to, by GID. TTL and traffic class of the lab's packets are fixed."""

    dgid: GID
    flow_label: int = 0
    sgid_index: int = 0
    hop_limit: int = 1
    traffic_class: int = 0

    def __str__(self) -> str:
        return table([(field, value) for field, value in vars(self).items()])


@dataclasses.dataclass
class AHAttr:
    """What an address handle is made of; RoCE addresses are global ones."""

    dlid: int = 0
    sl: int = 0
    src_path_bits: int = 0
    static_rate: int = 0
    is_global: int = 0
    port_num: int = 1
    gr: GlobalRoute | None = None

    def __post_init__(self) -> None:
        if self.is_global and self.gr is None:
            raise PyverbsUserError("Global AH Attr is created but gr parameter is None")

    def __str__(self) -> str:
        rows = [(field, value) for field, value in vars(self).items() if field != "gr"]
        return table(rows, "  ") + (str(self.gr) if self.gr else "")


class AH(Closable):
    """An address handle: from `attr`, or the way back from `wc` with the GRH at address `grh`."""

    close_rank = 1

    def __init__(
        self,
        pd: PD,
        *,
        attr: AHAttr | None = None,
        wc: WC | None = None,
        grh: int | None = None,
        port_num: int = 1,
    ) -> None:
        if (attr is None) == (wc is None or grh is None):
            raise PyverbsUserError("an AH is made of attr, or of wc and grh")
        gid = _source_gid(grh) if attr is None and grh is not None else _destination_gid(attr)
        own = pd.ctx.query_gid(1, 0)
        if (gid.ipv4 is None) != (own.ipv4 is None) or port_num != 1:
            raise PyverbsRDMAError(
                "Failed to create AH",
                errno.EINVAL,
                hint="port 1 reaches GIDs of its own IP version",
            )
        self.ip = gid.address
        self.mac = pd.ctx.next_hop_mac
        super().__init__(pd)
        self.pd = pd

    def __str__(self) -> str:
        return "AH\n" + table([("dgid", GID.of_address(self.ip))])


def _destination_gid(attr: AHAttr | None) -> GID:
    if attr is None or not attr.is_global or attr.gr is None or attr.port_num != 1:
        raise PyverbsRDMAError("Failed to create AH", errno.EINVAL, hint="RoCE needs is_global=1")
    return attr.gr.dgid


def _source_gid(grh: int) -> GID:
    """The IP header takes the place of the GRH; IPv4's its second half (annex A17.4.5.2)."""
    area = ctypes.string_at(grh, GRH_BYTES)
    if area[0] >> 4 == 6:
        return GID.of_address(int.from_bytes(area[8:24], "big"))
    return GID.of_address(int.from_bytes(area[_IPV4_AT + 12 : _IPV4_AT + 16], "big"))
