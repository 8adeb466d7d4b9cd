# SPDX-License-Identifier: GPL-2.0-or-later
"""The messages that a policy's hooks are about. What becomes of them, the native session knows."""

from __future__ import annotations

import dataclasses
from typing import Any

from softroce_lab.transports.api import Key
from softroce_lab.transports.control import PacketSet


@dataclasses.dataclass(slots=True)
class Sending:
    """A send that has not been acknowledged, as the newest hook about it saw it."""

    handle: int
    peer: int
    id: int
    key: Key
    count: int
    rnr_naks: int = 0  # times the receiver was not ready
    retry_ns: int = 0  # paused until then because of it
    out: bool = False  # every packet has been sent
    known_missing: PacketSet | None = None  # of packets or chunks, by the last feedback
    timeouts_without_progress: int = 0  # timeouts in a row
    memory: Any = None  # of the policy


@dataclasses.dataclass(slots=True)
class Receiving:
    """A posted receive that is not complete, as the newest hook about it saw it."""

    handle: int
    peer: int
    key: Key
    count: int
    id: int | None = None  # None: no packet has arrived
    received: int = 0  # packets, known ones too, when last looked at
    timeouts_without_progress: int = 0  # timeouts in a row
    fed_back: int = 0  # packets that had arrived, known ones too, when feedback was sent last
    memory: Any = None  # of the policy
