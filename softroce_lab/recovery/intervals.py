# SPDX-License-Identifier: GPL-2.0-or-later
"""How long `csa_ud` waits from one loss check of a message to the next: rules to compare, by name.

All of it is this project's definition (docs/intervals.md). A rule gets what a round trip takes
(a*SRTT + b*RTTVAR, times the backoff factor), how long the packets that are missing
would take at the rate of late, and whether the message holds up its step. The caller keeps the
result between T_min and T_max. Times are ns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from softroce_lab.recovery.defaults import Timing

Rule: TypeAlias = Callable[[Timing, int, int, bool], int]
"""(timing, round trip, transfer of what is missing, whether a step waits for it) -> ns."""

LINEAR = "linear"
SYNC_AWARE = "sync-aware"


def fixed(timing: Timing, round_trip_ns: int, transfer_ns: int, straggles: bool) -> int:
    """A constant, whatever is measured and missing."""
    return timing.fixed_check_ns


def linear(timing: Timing, round_trip_ns: int, transfer_ns: int, straggles: bool) -> int:
    """A round trip behind the end of the transfer: linear in what is missing."""
    return round_trip_ns + transfer_ns


def exponential(timing: Timing, round_trip_ns: int, transfer_ns: int, straggles: bool) -> int:
    """A round trip behind half of what is missing, then of what is missing then, and so on."""
    return round_trip_ns + transfer_ns // 2


def sync_aware(timing: Timing, round_trip_ns: int, transfer_ns: int, straggles: bool) -> int:
    """As `linear`; as `exponential` when most of the message's step is complete."""
    return round_trip_ns + (transfer_ns // 2 if straggles else transfer_ns)


_RULES: dict[str, Rule] = {
    "fixed": fixed,
    LINEAR: linear,
    "exponential": exponential,
    SYNC_AWARE: sync_aware,
}


def names() -> list[str]:
    """The known rules, sorted."""
    return sorted(_RULES)


def find(name: str) -> Rule:
    """The rule called `name`."""
    return _RULES[name]
