# SPDX-License-Identifier: GPL-2.0-or-later
"""What several tasks require of a trial. Each function returns what does not hold, in words."""

from __future__ import annotations

import numpy as np

from softroce_lab import units
from softroce_lab.learn.remote import Retransmission
from softroce_lab.learn.trial import Trial
from softroce_lab.telemetry.repairs import times_ns

NOTHING_SENT_AGAIN = "nothing was ever sent again, although packets were lost"


def place(made: Retransmission) -> str:
    """When and where a decision was made."""
    message = "/".join(map(str, made.key))
    return f"at {units.format_duration(made.at_ns)}, in {made.hook} of message {message}"


def find_blind(made: Retransmission) -> list[str]:
    """A retransmission although no report said that a packet is missing."""
    if made.missing is not None or made.hook == "on_feedback":
        return []
    return [
        f"{place(made)}: you sent {len(made.packets):,} packets again before any feedback of the "
        "receiver: nobody said that one is missing. Wait for on_feedback, or ask with "
        "RequestStatus"
    ]


def limit_waste(trial: Trial, share: float, free: int = 0) -> list[str]:
    """More packets sent again than `share` of the lost ones, plus `free` packets."""
    figures = trial.figures
    again, drops = figures["retransmitted"], figures["injected_drops"]
    most = int(drops * share) + free
    if again <= most:
        return []
    return [
        f"{again:,} packets were sent again and only {drops:,} were lost; at most {most:,} are "
        f"needed here. {find_first_waste(trial)}"
    ]


def find_first_waste(trial: Trial) -> str:
    """The first decision that sent again what was not lost, as far as its sender could know."""
    for made in trial.record.retransmissions:
        if made.missing is None:
            return f"The first: {place(made)}, before any feedback of the receiver"
        arrived = np.setdiff1d(made.packets, made.missing)
        if arrived.size:
            return (
                f"The first: {place(made)}, packet {arrived[0]}, which the receiver has "
                "by its newest feedback"
            )
    return "All were missing at the receiver then: they were late, or sent again already"


def limit_repair(trial: Trial, rtts: float, advice: str, *, median: bool = False) -> list[str]:
    """Lost packets that arrived too late: the last one, or the median."""
    taken = times_ns(trial.lost)
    if not len(taken):
        return []
    worst = float(np.median(taken) if median else taken.max()) / trial.rtt_ns
    if worst <= rtts:
        return []
    which = "half of the lost packets" if median else "a lost packet"
    return [f"{which} took {worst:.1f} round trips and more to be repaired; {advice}"]
