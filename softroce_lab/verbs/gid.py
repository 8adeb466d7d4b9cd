# SPDX-License-Identifier: GPL-2.0-or-later
"""Global identifiers: what a port is called (IBA 4.1.1, annex A17.4.5)."""

from __future__ import annotations

import dataclasses
import ipaddress
from typing import Self

from softroce_lab.verbs.base import table
from softroce_lab.verbs.enums import IBV_GID_TYPE_ROCE_V2, ibv_gid_type
from softroce_lab.verbs.errors import PyverbsUserError


class GID:
    """A global identifier: an IPv6 address, for RoCEv2 over IPv4 one of ::ffff:0:0/96."""

    def __init__(self, val: str | None = None) -> None:
        try:
            self._address = ipaddress.IPv6Address("::" if val is None else val)
        except ValueError as error:
            raise PyverbsUserError(f"Invalid GID value ({val}): {error}") from error

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


@dataclasses.dataclass(frozen=True)
class GIDEntry:
    """A GID in the table of its port."""

    gid: GID
    gid_index: int
    port_num: int
    gid_type: ibv_gid_type = IBV_GID_TYPE_ROCE_V2
    ndev_ifindex: int = 0

    def __str__(self) -> str:
        return table(vars(self).items())
