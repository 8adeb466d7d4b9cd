# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench programs`: unmodified programs over the lab's RNICs, against bare AF_XDP and rxe."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from softroce_lab import units
from softroce_lab.bench.rdma import programs as bench_programs
from softroce_lab.bench.rdma import verbs as bench_verbs
from softroce_lab.cli.development.bench_options import RateSeconds, Rounds, Trips
from softroce_lab.cli.options import Json, Quiet, Xdp, XdpMode, saying


def programs(
    rounds: Rounds = 15,
    seconds: RateSeconds = 0.5,
    trips: Trips = 5000,
    guest: Annotated[
        bool, typer.Option(help="Also compare with Linux's rxe in a virtual machine.")
    ] = True,
    xdp: Xdp = XdpMode.AUTO,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure perftest over the lab's libibverbs: bare AF_XDP, lab perf and rxe beside it."""
    options = bench_programs.Options(rounds, seconds, trips, guest, mode=xdp.value)
    outcome = bench_programs.run(options, saying(quiet))
    if as_json:
        print(json.dumps(outcome.document(), indent=1))
    else:
        print_medians(outcome)
        print_ratios(outcome)


def print_medians(outcome: bench_programs.Outcome | bench_verbs.Outcome) -> None:
    """Rates, then round trips."""
    for name, rate in outcome.rates_bps().items():
        print(f"{name:22}{units.format_rate(rate.median):>14}")
    for name, trip in outcome.round_trips_ns().items():
        print(f"{name:22}{trip.median / 1e3:>11.1f} us")


def print_ratios(outcome: bench_programs.Outcome | bench_verbs.Outcome) -> None:
    """With their intervals."""
    print(f"\n{'ratio':22}median [95 % interval]    ({outcome.mode} XDP)")
    for name, ratio in outcome.ratios().items():
        print(f"{name:22}{ratio}")
