# SPDX-License-Identifier: GPL-2.0-or-later
"""RC queue pairs in memory, posted and polled from Python: WRITEs and round trips of 64 bytes."""

from __future__ import annotations

from benchmarks.memory import InMemory


def measure(short: bool) -> dict[str, float]:
    """WRITEs and round trips a second of CPU."""
    ends, turns = InMemory().ends, 10 if short else 1000
    ends.trips_per_cpu_s(10)  # warm
    return {
        "writes_per_cpu_s": ends.writes_per_cpu_s(turns),
        "round_trips_per_cpu_s": ends.trips_per_cpu_s(5 * turns),
    }
