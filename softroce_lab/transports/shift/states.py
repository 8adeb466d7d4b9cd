# SPDX-License-Identifier: GPL-2.0-or-later
"""States, paths and events of a queue pair with a backup (SHIFT, arXiv 2512.11094)."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


class Sender(enum.Enum):
    """States of the sending side, by their published names; FAILED is the lab's."""

    DEFAULT = "Default"
    FALLBACK = "Fallback"
    WAIT_SIGNALED = "WaitSignaled"
    WAIT_DRAINED = "WaitDrained"
    FAILED = "Failed"


class Receiver(enum.Enum):
    """States of the receiving side, by their published names."""

    DEFAULT = "Default"
    FALLBACK = "Fallback"


class Path(enum.IntEnum):
    """Which of the two queue pairs; an epoch's path is its lowest bit."""

    DEFAULT = 0
    BACKUP = 1

    @classmethod
    def of(cls, epoch: int) -> Path:
        """The path that an epoch uses."""
        return cls(epoch & 1)


@dataclasses.dataclass(frozen=True)
class Event:
    """A transition: what a side was in, what it is in now, why, and how much was moved."""

    at_ns: int
    qp_num: int
    epoch: int
    side: str  # "sender" or "receiver"
    before: str
    after: str
    why: str
    consumed: int = 0  # requests that the peer had executed
    resubmitted: int = 0  # requests that were posted again
    receives: int = 0  # receives that were posted again
    peer_gid: str = ""  # of the peer's default NIC; "": not connected yet
    peer_qp_num: int = 0

    def row(self, names: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
        """In the columns of `telemetry.transitions`, but for the host; `names`: by GID."""
        return {
            "time_ns": self.at_ns,
            "peer": names.get(self.peer_gid, self.peer_gid),
            "qp": self.qp_num,
            "peer_qp": self.peer_qp_num,
            "epoch": self.epoch,
            "side": self.side,
            "before": self.before,
            "after": self.after,
            "why": self.why,
            "consumed": self.consumed,
            "resubmitted": self.resubmitted,
            "receives": self.receives,
        }


@dataclasses.dataclass(frozen=True)
class Settings:
    """Times and sizes; all in ns.

    `handshake_timeout_ns`: how long a peer may take to answer, before the failure surfaces.
    `probe_interval_ns`: between probes of the default path; it doubles after each that fails, or
    that led to a failback which failed within it, up to `most_probe_interval_ns`.
    `drain_timeout_ns`: how long requests are held for a failback, before it is given up.
    """

    handshake_timeout_ns: int = 2_000_000_000
    probe_interval_ns: int = 20_000_000
    most_probe_interval_ns: int = 2_000_000_000
    drain_timeout_ns: int = 500_000_000
