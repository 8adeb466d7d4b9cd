# SPDX-License-Identifier: GPL-2.0-or-later
"""Which path MTU fits into the frames of a lab's links."""

from __future__ import annotations

from softroce_lab.errors import UserError

IBA_MTU_BYTES = (4096, 2048, 1024, 512, 256)  # IBA table 26
OVERHEAD_BYTES = {4: 52, 6: 72}
"""Of a UD packet, by IP version: IP 20 or 40, UDP 8, BTH 12, DETH 8, ICRC 4."""


def path_mtu_bytes(netdev_mtu_bytes: int, ip_version: int) -> int:
    """The largest path MTU whose packets fit into frames of links with this MTU."""
    overhead = OVERHEAD_BYTES[ip_version]
    for mtu in IBA_MTU_BYTES:
        if mtu + overhead <= netdev_mtu_bytes:
            return mtu
    raise UserError(
        f"an MTU of {netdev_mtu_bytes} bytes holds no RDMA packet",
        hint=f"at least {IBA_MTU_BYTES[-1] + overhead}",
    )
