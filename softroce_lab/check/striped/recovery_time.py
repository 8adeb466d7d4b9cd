# SPDX-License-Identifier: GPL-2.0-or-later
"""How long recovery took: from a loss to its detection, to the retransmission, to the arrival."""

from __future__ import annotations

import dataclasses

import numpy as np

from softroce_lab import units
from softroce_lab.check.striped.losses import Understood
from softroce_lab.check.striped.messages import NEVER, Places
from softroce_lab.check.verdict import Rules, Tally
from softroce_lab.statistics import marked

_HERE = "docs/howto/capture.md, Times of recovery"
RULES = Rules()


@dataclasses.dataclass(frozen=True, slots=True)
class Distribution:
    """Of times, ns; percentiles are values that occurred."""

    count: int
    p50_ns: int
    p99_ns: int
    max_ns: int

    @classmethod
    def of(cls, times_ns: Places) -> Distribution:
        """Of at least one time."""
        p50, p99, most = np.percentile(times_ns, [50, 99, 100], method="higher")
        return cls(len(times_ns), int(p50), int(p99), int(most))

    def __str__(self) -> str:
        """For people."""
        times = (self.p50_ns, self.p99_ns, self.max_ns)
        p50, p99, most = (units.format_duration(each) for each in times)
        return f"p50 {p50}, p99 {marked(p99, 990, self.count)}, max {most}, n {self.count:,}"


def measure(lab: Understood) -> dict[str, dict[str, Distribution]]:
    """By transport, by what is behind the point of the rule."""
    view, controls, losses = lab.view, lab.controls, lab.losses
    steps = {
        "detected": np.where(losses.asked_at < losses.retransmitted_at, losses.asked_at, NEVER),
        "retransmitted": losses.retransmitted_at,
        "repaired": losses.arrived_at,
    }
    found: dict[str, dict[str, Distribution]] = {}
    if not view.stamped:
        return found
    streams: dict[str, list[int]] = {}
    for stream in view.data_streams():
        name = controls.transports.get(stream.number, "no transport told")
        streams.setdefault(name, []).append(stream.number)
    for name, numbers in streams.items():
        of_these = np.isin(losses.stream, numbers) & ~losses.covered
        for step, until in steps.items():
            mine = of_these & (until != NEVER) & (until > losses.gone_at)
            if mine.any():
                times = view.time_ns(until[mine]) - view.time_ns(losses.gone_at[mine])
                found.setdefault(name, {})[step] = Distribution.of(times)
    return found


@RULES.rule(
    "recovery.detected",
    "from a loss to the first NACK or SACK that names it",
    _HERE,
)
@RULES.rule(
    "recovery.retransmitted",
    "from a loss to the next attempt",
    _HERE,
)
@RULES.rule(
    "recovery.repaired",
    "from a loss to the packet's arrival at the receiver's link",
    _HERE,
)
def check(lab: Understood, *tallies: Tally) -> None:
    """Nothing can fail here: the notes have the figures, `measure` the numbers."""
    by_step = {tally.rule.short: tally for tally in tallies}
    for transport, steps in measure(lab).items():
        for step, times in steps.items():
            by_step[step].passed(times.count)
            by_step[step].notes_that(f"{transport}: {times}")
