# SPDX-License-Identifier: GPL-2.0-or-later
"""Settings of a host process and their encoding; shared with the experiment that runs it."""

from __future__ import annotations

import base64
import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

from softroce_lab import _native
from softroce_lab.workloads.work import Workload

RECEIVE_FRAMES = 4096
PACING_SLACK_NS = 100_000
"""How late the engine's turn may come, and a paced packet with it, before its rate suffers."""
WINDOW_PACKETS = 1024
"""One bandwidth-delay product of the lab; a quarter of the receive ring, half of what may be."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RailSettings:
    """A port of a host: what differs from that of another rail."""

    interface: str
    ifindex: int
    uplink: int  # the directed link that begins at its port
    address: int  # IPv4 or IPv6, as `ipaddress.ip_address` takes numbers
    mac: int
    gateway_mac: int  # of the next hop to everybody else
    statistics: str = ""  # path of the file to publish counters in


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings(RailSettings):
    """An RNIC and its port, before it has peers."""

    node: str
    xsks_map: str  # path of the pinned XSKMAP
    queues_map: str  # path of the pinned map of backlogs
    epoch_ns: int  # CLOCK_MONOTONIC at the beginning of the run
    cpu: int = -1
    receive_frames: int = RECEIVE_FRAMES
    # Of a process with a task.
    transport: dict[str, Any] = dataclasses.field(default_factory=dict)  # a Transport's document
    qkey: int = 0
    tuning: dict[str, Any] = dataclasses.field(default_factory=dict)  # of a HostTuning
    event_log: str | None = None  # path of the file to write the event log to
    running_fd: int = -1  # memory that shows which call of a user's policy runs; -1: none
    others: tuple[dict[str, Any], ...] = ()  # `RailSettings` of further rails that it uses

    def native(self, messages: Any) -> Any:
        """The configuration of the engine at this port. `messages`: a `MessageConfig`."""
        config = _native.HostConfig()
        port = config.port
        port.interface, port.ifindex = self.interface, self.ifindex
        port.xsks_map_path = self.xsks_map
        port.receive_frames = self.receive_frames
        config.messages, config.port = messages, port
        config.mac, config.epoch_ns, config.cpu = self.mac, self.epoch_ns, self.cpu
        config.queues_map, config.uplink = self.queues_map, self.uplink
        config.statistics = self.statistics
        return config


@dataclasses.dataclass(frozen=True, slots=True)
class HostOptions:
    """What else the user chooses of hosts on the real clock."""

    ip_version: int = 4
    event_log: Path | None = None  # an absolute path; all hosts append to it
    cpus: tuple[int, ...] = ()  # of the engines, by rank; (): any


@dataclasses.dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """A host's part in a workload."""

    host: int  # which one it is, by its index in the plan
    workload: str  # as `packed` made it
    seed: int
    depth: int  # sends outstanding to a peer


def packed(workload: Workload) -> str:
    """A workload as text (pickle), for a host process of this program only."""
    return base64.b64encode(pickle.dumps(workload)).decode()


def unpacked(text: str) -> Workload:
    """What `packed` packed; never of anything from elsewhere, as it may run code."""
    workload: Workload = pickle.loads(base64.b64decode(text))  # noqa: S301 - from the parent process
    return workload


def read_command(line: str) -> tuple[str, dict[str, Any]]:
    """A line of a host process's standard input: the command and its arguments."""
    command, _, arguments = line.strip().partition(" ")
    return command, json.loads(arguments) if arguments else {}
