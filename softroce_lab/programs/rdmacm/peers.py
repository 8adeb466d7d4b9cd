# SPDX-License-Identifier: GPL-2.0-or-later
"""Connections by the peers' comm ids, and by their queue pairs (IBA 12.9.8.3)."""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import TypeAlias

from softroce_lab.programs.rdmacm.connection import Connection

_Key: TypeAlias = tuple[IPv6Address, int, int]  # GID, CA GUID, number


class Peers:
    """Finds what a REQ or REP repeats, and what it makes stale."""

    def __init__(self) -> None:
        self._by_id: dict[_Key, int] = {}
        self._by_qpn: dict[_Key, int] = {}

    def with_id(self, gid: IPv6Address, guid: int, remote_id: int) -> int | None:
        """The local comm id of the connection with this comm id of the peer."""
        return self._by_id.get((gid, guid, remote_id))

    def with_qpn(self, gid: IPv6Address, guid: int, qpn: int) -> int | None:
        """The local comm id of the connection of this queue pair of a peer."""
        return self._by_qpn.get((gid, guid, qpn))

    def remember(self, connection: Connection) -> None:
        """Record the peer's comm id and queue pair."""
        gid, guid = connection.gid, connection.remote_guid
        self._by_id[gid, guid, connection.remote_id] = connection.comm_id
        self._by_qpn[gid, guid, connection.remote_qpn] = connection.comm_id

    def forget(self, connection: Connection) -> None:
        """The connection is over; nothing happens to those that have its numbers by now."""
        gid, guid = connection.gid, connection.remote_guid
        for table, number in (
            (self._by_id, connection.remote_id),
            (self._by_qpn, connection.remote_qpn),
        ):
            if table.get((gid, guid, number)) == connection.comm_id:
                del table[gid, guid, number]

    def __len__(self) -> int:
        return len(self._by_id) + len(self._by_qpn)
