# SPDX-License-Identifier: GPL-2.0-or-later
"""Congestion control by name: what there is, what a fabric calls for, and what it gets of it.

The algorithms are native (native/engine/congestion); docs/explanation/transports.md describes them.
"""

from __future__ import annotations

import dataclasses

from softroce_lab._native import congestion_control_names
from softroce_lab.errors import UserError
from softroce_lab.plan.effects import Queue
from softroce_lab.plan.plan import Plan

CNP_INTERVAL_NS = 50_000
"""Least time between two CNPs of a flow (Zhu et al., SIGCOMM 2015, section 3.1)."""


def names() -> list[str]:
    """The known congestion controls, sorted."""
    return sorted(congestion_control_names())


def check(name: str) -> str:
    """The name itself; UserError that lists the known ones if there is none like it."""
    if name in names():
        return name
    raise UserError(
        f"unknown congestion control '{name}'",
        hint=f"known congestion controls: {', '.join(names())}",
    )


def for_plan(plan: Plan) -> str:
    """The default: `dcqcn` where queues set congestion marks, else `bdp`.

    No fabric of the lab is without loss: there is no priority flow control.
    """
    marks = any(
        fault.effect.ecn_bytes is not None or fault.effect.ecn_packets is not None
        for fault in plan.faults
        if isinstance(fault.effect, Queue)
    )
    return "dcqcn" if marks else "bdp"


@dataclasses.dataclass(frozen=True, slots=True)
class FabricFigures:
    """What congestion control gets of the fabric that it is made for; fields of MessageConfig.

    A loop of DCQCN cannot be faster than the fabric: where a round trip is longer than its interval
    between two CNPs, that is the interval, and its timers follow.
    """

    base_rtt_ns: int
    cnp_interval_ns: int
    line_rate_bps: int | None  # None: the engine's own default

    @classmethod
    def of(cls, base_rtt_ns: int, line_rate_bps: int = 0) -> FabricFigures:
        """Of an empty fabric's round trip, and of the rate at its hosts; 0: nothing limits it."""
        return cls(base_rtt_ns, max(CNP_INTERVAL_NS, base_rtt_ns), line_rate_bps or None)
