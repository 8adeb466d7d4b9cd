# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host process is told, and how; shared by the process and the experiment that runs it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from softroce_lab.errors import UserError

IBA_MTU_BYTES = (2048, 1024, 512, 256)  # IBA table 26; 4096 is left out, as one page holds no more
OVERHEAD_BYTES = {4: 52, 6: 72}
"""Of a UD packet, by IP version: IP 20 or 40, UDP 8, BTH 12, DETH 8, ICRC 4."""
PATHS = 8
RECEIVE_FRAMES = 4096
WINDOW_PACKETS = 1024
"""One bandwidth-delay product of the lab; a quarter of the receive ring, half of what may be."""


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


@dataclasses.dataclass(frozen=True, slots=True)
class HostSettings:
    """An RNIC and its port, before it has peers."""

    node: str
    interface: str
    ifindex: int
    address: int  # IPv4 or IPv6, as `ipaddress.ip_address` takes numbers
    mac: int
    xsks_map: str  # path of the pinned XSKMAP
    xdp_mode: str  # native or generic
    transport: str
    epoch_ns: int  # CLOCK_MONOTONIC at the beginning of the run
    qkey: int
    path_mtu: int
    congestion_control: str = "bdp"
    paths: int = PATHS
    window_packets: int = WINDOW_PACKETS
    receive_frames: int = RECEIVE_FRAMES
    cpu: int = -1


@dataclasses.dataclass(frozen=True, slots=True)
class PeerSettings:
    """Another host, once it is known which QPs it has."""

    address: int
    mac: int  # of the next hop towards it
    data_qp: int
    recovery_qp: int
    qkey: int


@dataclasses.dataclass(frozen=True, slots=True)
class TransferSettings:
    """One side of a file transfer."""

    role: str  # "send" or "receive"
    total_bytes: int
    message_bytes: int
    depth: int  # messages posted at once
    path: str | None  # the file to read, or to write; None when received bytes are only hashed
    hash: bool = True


def read_command(line: str) -> tuple[str, dict[str, Any]]:
    """A line of a host process's standard input: the command and its arguments."""
    command, _, arguments = line.strip().partition(" ")
    return command, json.loads(arguments) if arguments else {}
