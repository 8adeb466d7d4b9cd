# SPDX-License-Identifier: GPL-2.0-or-later
"""How much of each packet a capture keeps, and what it came to; the same on both clocks."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from softroce_lab.errors import UserError

LEAST_SNAP_BYTES = 62  # Ethernet, IPv6, UDP: with less nobody knows a packet for RoCE
MOST_SNAP_BYTES = 4096  # LAB_SNAP_MAX; no frame of a lab is longer
SNAP_BYTES = 256  # of a run's captures: all headers, and whole control messages


@dataclasses.dataclass(frozen=True, slots=True)
class InterfaceFigures:
    """A directed link's packets since the capture began."""

    name: str
    received: int  # that were to be captured
    missed: int  # of those, that found the ring buffer or the file full


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """How far a capture is, or how it ended."""

    interfaces: tuple[InterfaceFigures, ...]
    error: int = 0  # errno: why its file took no more; 0: it did

    @property
    def captured(self) -> int:
        """Packets that are in the file."""
        return sum(each.received - each.missed for each in self.interfaces)

    @property
    def missed(self) -> int:
        """Packets that are not."""
        return sum(each.missed for each in self.interfaces)

    def document(self) -> dict[str, Any]:
        return {
            "captured": self.captured,
            "missed": self.missed,
            "error": os.strerror(self.error) if self.error else None,
            "interfaces": [dataclasses.asdict(each) for each in self.interfaces],
        }


def check_snap(snap_bytes: int) -> int:
    """`snap_bytes` if a capture can have it. UserError."""
    if snap_bytes and not LEAST_SNAP_BYTES <= snap_bytes <= MOST_SNAP_BYTES:
        hint = f"{LEAST_SNAP_BYTES} to {MOST_SNAP_BYTES} bytes; 0: whole packets"
        raise UserError(f"a snap length of {snap_bytes}", hint=hint)
    return snap_bytes
