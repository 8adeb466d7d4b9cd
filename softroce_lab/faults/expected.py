# SPDX-License-Identifier: GPL-2.0-or-later
"""What a fault does in the long run: the share of packets that it hits, and the length of its runs.

Of the packets that reach it while it acts and pass its filter.
"""

from __future__ import annotations

from softroce_lab.plan.effects import (
    Corrupt,
    Cut,
    Down,
    Drop,
    Duplicate,
    Effect,
    LossModel,
    Reorder,
    probability,
)


def rate(effect: Effect) -> float | None:
    """The share of packets that are hit; None: the effect does not choose packets."""
    match effect:
        case LossModel():
            return effect.rate
        case Cut(threshold) | Corrupt(threshold) | Duplicate(threshold):
            return probability(threshold)
        case Reorder(threshold, gap, _):
            q = probability(threshold)
            return q / (1 + q * max(gap - 1, 0))
        case Down() | Drop():
            return 1.0
        case _:
            return None


def mean_run(effect: Effect) -> float | None:
    """The mean number of consecutive packets that are hit; None: nothing ends a run, or none is."""
    match effect:
        case LossModel():
            return effect.mean_run
        case Cut(threshold) | Corrupt(threshold) | Duplicate(threshold):
            q = probability(threshold)
            return 1 / (1 - q) if 0 < q < 1 else None
        case Reorder(threshold, gap, _):
            q = probability(threshold)
            return 1.0 if gap > 1 and q else 1 / (1 - q) if 0 < q < 1 else None
        case _:
            return None
