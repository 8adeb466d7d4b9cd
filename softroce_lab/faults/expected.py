# SPDX-License-Identifier: GPL-2.0-or-later
"""What a fault does in the long run: the share of packets that it hits, and the length of its runs.

Of the packets that reach it while it acts and pass its filter.
"""

from __future__ import annotations

from softroce_lab.plan.effects import (
    Blackout,
    Burst,
    Corrupt,
    Down,
    Drop,
    Duplicate,
    Effect,
    Gemodel,
    Periodic,
    RandomLoss,
    Reorder,
    probability,
)


def rate(effect: Effect) -> float | None:
    """The share of packets that are hit; None: the effect does not choose packets."""
    match effect:
        case RandomLoss(threshold) | Corrupt(threshold) | Duplicate(threshold):
            return probability(threshold)
        case Gemodel():
            return _gemodel(effect)[0]
        case Burst(begin, length):
            q = probability(begin)
            return q * length / (1 + q * (length - 1))
        case Periodic(every, length, _):
            return length / every
        case Reorder(threshold, gap, _):
            q = probability(threshold)
            return q / (1 + q * max(gap - 1, 0))
        case Down() | Blackout() | Drop():
            return 1.0
        case _:
            return None


def mean_run(effect: Effect) -> float | None:
    """The mean number of consecutive packets that are hit; None: nothing ends a run, or none is."""
    match effect:
        case RandomLoss(threshold) | Corrupt(threshold) | Duplicate(threshold):
            q = probability(threshold)
            return 1 / (1 - q) if 0 < q < 1 else None
        case Gemodel():
            share, both = _gemodel(effect)
            return share / (share - both) if share > both else None
        case Burst(begin, length):
            q = probability(begin)
            return length / (1 - q) if 0 < q < 1 else None
        case Periodic(every, length, _):
            return float(length) if length < every else None
        case Reorder(threshold, gap, _):
            q = probability(threshold)
            return 1.0 if gap > 1 and q else 1 / (1 - q) if 0 < q < 1 else None
        case _:
            return None


def _gemodel(effect: Gemodel) -> tuple[float, float]:
    """P(a packet is lost), P(two in a row are), in the chain's equilibrium.

    A packet's fate hangs on the state that it finds; then the chain moves (netem's order).
    """
    p, r = probability(effect.p), probability(effect.r)
    loss = {False: probability(effect.loss_good), True: probability(effect.loss_bad)}
    bad = p / (p + r) if p + r else 0.0  # the chain begins in the good state
    there = {False: 1 - bad, True: bad}
    move = {(False, True): p, (False, False): 1 - p, (True, False): r, (True, True): 1 - r}
    one = sum(there[state] * loss[state] for state in there)
    two = sum(there[s] * loss[s] * move[s, t] * loss[t] for s in there for t in there)
    return one, two
