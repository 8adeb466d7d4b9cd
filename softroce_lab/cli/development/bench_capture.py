# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench capture`: what a capture takes in, what it misses, what it costs."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from softroce_lab import units
from softroce_lab.bench import capture as bench_capture
from softroce_lab.cli.capture_options import Snap
from softroce_lab.cli.options import Json, Quiet, Xdp, XdpMode, saying


def capture(
    rounds: Annotated[
        int, typer.Option(min=1, help="Pairs of floods; 15 or more for a 95 % interval.")
    ] = 15,
    seconds: Annotated[
        float, typer.Option(min=0.05, help="Length of the paced part in seconds.")
    ] = 10.0,
    rate: Annotated[float, typer.Option(min=1, help="Rate of the paced part in frames/s.")] = (
        bench_capture.FRAMES_PER_SECOND
    ),
    snap: Snap = bench_capture.SNAP_BYTES,
    flood: Annotated[float, typer.Option(min=0.05, help="Length of a flood in seconds.")] = 0.5,
    xdp: Xdp = XdpMode.AUTO,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure packets missed by a capture, at a constant rate and in a flood, and its cost."""
    options = bench_capture.Options(rounds, seconds, flood, rate, snap, mode=xdp.value)
    outcome = bench_capture.run(options, saying(quiet))
    if as_json:
        print(json.dumps(outcome.document(), indent=1))
    else:
        _print(outcome)


def _print(outcome: bench_capture.Outcome) -> None:
    paced = outcome.paced
    print(
        f"paced: {paced.frames_per_second:,.0f} frames/s; of {paced.sent:,} {paced.in_file:,} in "
        f"the file ({units.format_bytes(paced.file_bytes)}), {paced.figures.missed:,} missed; "
        f"the monitor took {paced.cpu_share:.1%} of a CPU"
    )
    rates = outcome.rates()
    for name, rate in rates.items():
        print(
            f"flood, {name:10}{rate.median:>12,.0f} frames/s  [{rate.low:,.0f} to {rate.high:,.0f}]"
        )
    print(f"ratio {outcome.ratio}; {outcome.flood_missed:,} of {outcome.flood_received:,} missed")
