# SPDX-License-Identifier: GPL-2.0-or-later
"""What several tasks require of a trial. Each returns what does not hold, in words."""

from __future__ import annotations

import numpy as np

from softroce_lab import units
from softroce_lab.learn.hosted import Retransmission
from softroce_lab.learn.trial import Trial
from softroce_lab.telemetry.repairs import REPAIR, Repairs, times_ns


def named(each: Retransmission) -> str:
    """A message by its key."""
    return "/".join(map(str, each.key))


def at(each: Retransmission) -> str:
    """Where a decision was made."""
    return f"at {units.format_duration(each.at_ns)}, in {each.hook} of message {named(each)}"


def blind(each: Retransmission) -> bool:
    """Whether the sender had no report that a packet was missing."""
    return each.missing is None and each.hook != "on_feedback"


def unasked(each: Retransmission) -> str:
    """What is wrong with a blind retransmission."""
    return (
        f"{at(each)}: you sent {len(each.packets):,} packets again before any feedback of the "
        "receiver: nobody said that one is missing. Wait for on_feedback, or ask with "
        "RequestStatus"
    )


def wasteful(found: Trial, share: float, free: int = 0) -> list[str]:
    """More sent again than `share` of what was lost, and `free` packets besides."""
    figures = found.figures
    again, drops = figures["retransmitted"], figures["injected_drops"]
    most = int(drops * share) + free
    if again <= most:
        return []
    return [
        f"{again:,} packets were sent again and only {drops:,} were lost; at most {most:,} are "
        f"needed here. {wasted(found)}"
    ]


def wasted(found: Trial) -> str:
    """The first decision that sent again what was not lost, as far as its sender could know."""
    for each in found.retransmissions:
        if each.missing is None:
            return f"The first: {at(each)}, before any feedback of the receiver"
        there = np.setdiff1d(each.packets, each.missing)
        if there.size:
            return (
                f"The first: {at(each)}, packet {there[0]}, which the receiver has "
                "by its newest feedback"
            )
    return "All were missing at the receiver then: they were late, or sent again already"


def lost(found: Trial) -> Repairs:
    """Packets whose first transmission was lost."""
    repairs = found.run.repairs
    return np.zeros(0, REPAIR) if repairs is None else repairs


def slow(found: Trial, most_rtts: float, *, median: bool, advice: str) -> list[str]:
    """Lost packets that were not there in time: the median, or the last one."""
    taken = times_ns(lost(found))
    if not len(taken):
        return []
    worst = float(np.median(taken) if median else taken.max()) / found.rtt_ns
    if worst <= most_rtts:
        return []
    which = "half of the lost packets" if median else "a lost packet"
    return [f"{which} took {worst:.1f} round trips and more to be repaired; {advice}"]
