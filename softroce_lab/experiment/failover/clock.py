# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab demo failover` on the clock that is asked for: a lab, or where none comes up, simulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from softroce_lab.experiment import demo
from softroce_lab.experiment.failover import rig, virtual
from softroce_lab.experiment.failover.rig import Options, Outcome

Say: TypeAlias = Callable[[str], None]


def run(options: Options, clock: demo.Clock, say: Say) -> tuple[list[Outcome], str]:
    """Both jobs, and the clock of them, `real` or `virtual`; as `lab demo` chooses it.

    UserError, EnvironmentLackError (if the real clock, or a way of XDP, was insisted on), RunError.
    """
    rig.plan_of(options)  # refuses what works on no clock

    def on(clock: demo.OneClock) -> tuple[list[Outcome], str]:
        job = rig.run if clock == "real" else virtual.run
        return job(options, say), clock

    return demo.on_clock(clock, on, demo.of_xdp(options.mode), say)
