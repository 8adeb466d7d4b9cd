# SPDX-License-Identifier: GPL-2.0-or-later
"""What the event log costs: RC in memory with the log of both ends on, over the same with it off.

A SEND of 64 bytes has about five events a packet, as many as there can be. The CPU time is that of
the whole process: the threads that write count.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.memory import InMemory
from softroce_lab.telemetry import event_log
from softroce_lab.telemetry.event_log import EventLog


def measure(short: bool) -> dict[str, float]:
    """Ratios of rates, and events that were lost."""
    rig, turns = InMemory(), 20 if short else 4000
    rig.ends.trips_per_cpu_s(10)  # warm
    plain = rig.ends.writes_per_cpu_s(turns), rig.ends.trips_per_cpu_s(turns)
    with tempfile.TemporaryDirectory(prefix="softroce-benchmark-") as folder:
        path = event_log.create(Path(folder) / "log.jsonl")
        logs = [EventLog(each, path, host=str(at)) for at, each in enumerate(rig.endpoints)]
        logged = rig.ends.writes_per_cpu_s(turns), rig.ends.trips_per_cpu_s(turns)
        totals = [log.close() for log in logs]
    return {
        "writes_on_over_off": logged[0] / plain[0],
        "round_trips_on_over_off": logged[1] / plain[1],
        "events": sum(each.records for each in totals),
        "events_lost": sum(each.lost for each in totals),
    }
