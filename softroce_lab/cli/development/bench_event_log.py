# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench event-log`: what the event log costs."""

from __future__ import annotations

import json

from softroce_lab.bench import event_log as bench_event_log
from softroce_lab.cli.development.bench_options import RateSeconds, Rounds, Trips
from softroce_lab.cli.options import Json, Quiet, Xdp, XdpMode, saying


def event_log(
    rounds: Rounds = 15,
    seconds: RateSeconds = 0.5,
    trips: Trips = 5000,
    xdp: Xdp = XdpMode.AUTO,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure RC with the event log on and off: 1 MiB WRITEs, 64-byte SENDs, round trips."""
    options = bench_event_log.Options(rounds, seconds, trips, mode=xdp.value)
    outcome = bench_event_log.run(options, saying(quiet))
    document = outcome.document()
    if as_json:
        print(json.dumps(document, indent=1))
        return
    print(f"{'':8}{'off':>12}{'on':>12}  on / off [95 % interval]    ({outcome.mode} XDP)")
    rates = document["messages_per_second"]
    for name, ratio in outcome.ratios().items():
        off, on = rates[f"{name}_off"], rates[f"{name}_on"]
        print(f"{name:8}{off:>10,}/s{on:>10,}/s  {ratio}")
    for name, logged in outcome.logged.items():
        print(f"{name:8}{logged.events:>12,} events, {logged.lost:,} lost, {logged.bytes:,} bytes")
