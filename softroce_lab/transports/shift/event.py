# SPDX-License-Identifier: GPL-2.0-or-later
"""Transitions of queue pairs with a backup, as programs and records have them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from softroce_lab.verbs import GID

if TYPE_CHECKING:
    from softroce_lab._native.shift import Transition

SEND_ONCE = 1 << 31
"""A send flag of the lab: the request must never be executed twice."""


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

    @classmethod
    def of(cls, native: Transition) -> Self:
        values = {field.name: getattr(native, field.name) for field in dataclasses.fields(cls)}
        gid = native.peer_gid
        return cls(**values | {"peer_gid": GID.of_address(gid).gid if gid else ""})

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
