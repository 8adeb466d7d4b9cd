# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench shift`: what a ShiftQP costs, and how long a failover takes."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from softroce_lab import units
from softroce_lab.bench.failover import measure
from softroce_lab.cli.development.bench_options import Rounds
from softroce_lab.cli.options import Json, Quiet, Xdp, XdpMode, saying


def shift(
    rounds: Rounds = measure.Options.rounds,
    failovers: Annotated[
        int, typer.Option(min=1, help="How often the first rail goes down.")
    ] = measure.Options.failovers,
    xdp: Xdp = XdpMode.AUTO,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure a connection with a backup against one without, and failovers (docs/shift.md)."""
    options = measure.Options(rounds=rounds, failovers=failovers, mode=xdp.value)
    outcome = measure.run(options, saying(quiet))
    if as_json:
        print(json.dumps(outcome.document(), indent=1))
        return
    print(f"{'rate, ShiftQP over QP':34}{outcome.rate_ratio}")
    print(f"{'64-byte latency, ShiftQP over QP':34}{outcome.latency_ratio}")
    for name, ratio in outcome.cpu.items():
        print(f"{name.replace('_', ' '):34}{ratio}")
    for name, count in outcome.instructions.items():
        least, most = min(count.ratios), max(count.ratios)
        label = f"instructions a {_PER[name]}"
        print(f"{label:34}{count.ratio:.4f} ({least:.4f} to {most:.4f}), {count.shift:,.0f}")
    print(f"{'set-up in the background over QP':34}{outcome.setup_ratio}")
    print(f"{'memory of a backup':34}{outcome.memory_per_backup_bytes:,} bytes")
    print(f"\n{'failover':34}median [95 % interval]")
    for label, name in _PARTS:
        part = outcome.part(name)
        low, high = (units.format_duration(round(each)) for each in (part.low, part.high))
        print(f"{label:34}{units.format_duration(round(part.median))} [{low}, {high}]")
    print(f"{'aimed for':34}{units.format_duration(measure.FAILOVER_LIMIT_NS)}")


_PER = {"trip": "message, there and back", "write": "WRITE", "setup": "queue pair's set-up"}
_PARTS = (
    ("link down to first failure", "detection_ns"),
    ("... to the peer's answer", "handshake_ns"),
    ("... to the first good completion", "first_good_ns"),
    ("first failed to first good", "failover_ns"),
)
