# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host process is told, and how; shared by the process and the experiment that runs it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

PATH_MTU_BYTES = 2048
PATHS = 8
RECEIVE_FRAMES = 4096
WINDOW_PACKETS = 1024
"""One bandwidth-delay product of the lab; a quarter of the receive ring, half of what may be."""


@dataclasses.dataclass(frozen=True, slots=True)
class HostSettings:
    """An RNIC and its port, before it has peers."""

    node: str
    interface: str
    ifindex: int
    address: int  # IPv4 as a number
    mac: int
    xsks_map: str  # path of the pinned XSKMAP
    xdp_mode: str  # native or generic
    transport: str
    epoch_ns: int  # CLOCK_MONOTONIC at the beginning of the run
    qkey: int
    congestion_control: str = "bdp"
    path_mtu: int = PATH_MTU_BYTES
    paths: int = PATHS
    window_packets: int = WINDOW_PACKETS
    receive_frames: int = RECEIVE_FRAMES
    cpu: int = -1

    @classmethod
    def from_json(cls, text: str) -> HostSettings:
        """The settings that `to_json` wrote."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """One line."""
        return json.dumps(dataclasses.asdict(self))


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
