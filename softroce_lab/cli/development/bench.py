# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench`: how fast the lab's parts are, each beside what bounds it."""

from __future__ import annotations

import enum
import json
from typing import Annotated

import typer

from softroce_lab import units
from softroce_lab.bench import engine as bench_engine
from softroce_lab.bench import faults as bench_faults
from softroce_lab.bench import path as bench_path
from softroce_lab.bench import samples
from softroce_lab.bench import wire as bench_wire
from softroce_lab.bench.rdma import verbs as bench_verbs
from softroce_lab.cli.development import (
    bench_capture,
    bench_check,
    bench_crossover,
    bench_ec,
    bench_event_log,
    bench_policy,
    bench_programs,
    bench_recovery,
    bench_shift,
    bench_sim,
    bench_spines,
    bench_tails,
    bench_up,
)
from softroce_lab.cli.development.bench_options import RateSeconds, Rounds, Trips
from softroce_lab.cli.modes import ModalCommand, Mode
from softroce_lab.cli.options import Json, Quiet, Xdp, XdpMode, saying
from softroce_lab.errors import UserError
from softroce_lab.statistics import marked

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure how fast the lab is on this machine."""


@app.command()
def engine(
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved pairs to measure.")] = 21,
    size: Annotated[str, typer.Option(help="Bytes that each side moves in a round.")] = "256MiB",
    cpu: Annotated[int | None, typer.Option(help="Core to run on; default: the last.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure the packet rate of two in-memory RNICs on one core against a copy-and-CRC loop."""
    options = bench_engine.Options(rounds, _bytes(size), cpu)
    say = saying(quiet)
    outcome = bench_engine.run(options, lambda done: say(f"round {done} of {rounds}"))
    if as_json:
        print(json.dumps(outcome.document(), indent=1))
        return
    for name, value in outcome.intervals().items():
        print(f"{name:8}{value.median:>12,.0f} packets/s  [{value.low:,.0f} to {value.high:,.0f}]")
    print(f"{'ratio':8}{outcome.ratio}")


@app.command()
def path(
    rounds: Rounds = 15,
    seconds: Annotated[
        float, typer.Option(min=0.05, help="Length of a bare sample in seconds.")
    ] = 0.5,
    transfer: Annotated[str, typer.Option(help="Size of a csa_ud transfer.")] = "256MiB",
    xdp: Xdp = XdpMode.AUTO,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure a path of three switches: bare sockets, switches, loss, csa_ud, TCP, UDP."""
    options = bench_path.Options(rounds, seconds, _bytes(transfer), mode=xdp.value)
    outcome = bench_path.run(options, saying(quiet))
    if as_json:
        print(json.dumps(outcome.document(), indent=1))
    else:
        _print_path(outcome)


def _print_path(outcome: bench_path.Outcome) -> None:
    rates = outcome.intervals("payload_bps")
    print(f"{'':18}{'frames/s':>10}  {'payload':>14}    ({outcome.mode} XDP)")
    for name, frames in outcome.intervals("frames_per_second").items():
        payload = units.format_rate(rates[name].median)
        print(f"{name:18}{frames.median:>10,.0f}  {payload:>14}")
    print(f"\n{'ratio':18}median [95 % interval]")
    for name, ratio in outcome.ratios().items():
        print(f"{name:18}{ratio}")
    pair = outcome.document()["pair_packets_per_second"]
    print(f"\nin-memory pair: {pair:,} packets/s")


class Part(enum.StrEnum):
    """What `lab bench faults` consists of."""

    FORWARDING = "forwarding"
    HOSTS = "hosts"
    WIRE = "wire"


class _Faults(ModalCommand):
    """A command that rejects options without effect in the chosen mode."""

    modes = (
        Mode("--only wire", lambda params: set(params["only"] or ()) == {"wire"}, ("rounds",)),
    )


@app.command(cls=_Faults)
def faults(
    rounds: Annotated[
        int, typer.Option(min=1, help="Pairs of each; 15 or more for a 95 % interval.")
    ] = 15,
    seconds: Annotated[float, typer.Option(min=0.05, help="Length of a sample in seconds.")] = 0.5,
    only: Annotated[
        list[Part] | None, typer.Option(help="Measure this part; may be repeated.")
    ] = None,
    xdp: Xdp = XdpMode.AUTO,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure the cost of faults: forwarding, kernel routers as the baseline, the wire stage."""
    parts = [part for part in bench_faults.PARTS if only is None or part in only]
    options = bench_faults.Options(rounds, seconds, parts, mode=xdp.value)
    outcome = bench_faults.run(options, saying(quiet))
    if as_json:
        print(json.dumps(outcome.document(), indent=1))
    else:
        _print_faults(outcome)


def _print_faults(outcome: bench_faults.Outcome) -> None:
    if outcome.pairs:
        print(f"{'':22}{'frames/s':>10}  {'beside':>10}  {'ratio':8}[95 % interval]"
              f"    ({outcome.mode} XDP)")  # fmt: skip
    rates = samples.intervals(outcome.samples(), "frames_per_second")
    for name, pair in outcome.pairs.items():
        above, below = rates[name].median, rates[f"{name}_beside"].median
        print(f"{name:22}{above:>10,.0f}  {below:>10,.0f}  {pair.ratio}")
    if outcome.wire is not None:
        _print_wire(outcome.wire)


def _print_wire(wire: bench_wire.Outcome) -> None:
    error, burst = wire.delay, wire.burst
    arrived = error.frames - error.lost
    scheduling = "SCHED_FIFO" if wire.fifo else "no SCHED_FIFO"
    print(f"wire stage: {wire.frames_per_second:,.0f} frames/s without loss ({scheduling})")
    print(
        f"delay {bench_wire.DELAY_NS / 1e6:g} ms: off by {error.p50 / 1e3:.1f} us in the median, "
        f"{marked(f'{error.p99 / 1e3:.1f} us', 990, arrived)} p99, "
        f"{marked(f'{error.p99_9 / 1e3:.1f} us', 999, arrived)} p99.9, "
        f"{error.most / 1e3:.0f} us at most; {error.lost:,} of {error.frames:,} lost"
    )
    requested, achieved = bench_wire.RATE_BPS, wire.achieved_bps
    print(
        f"rate {units.format_rate(requested)}: {units.format_rate(achieved)} achieved "
        f"({achieved / requested - 1:+.2%})"
    )
    marks = "never" if burst.marked_from is None else f"from {burst.marked_from} waiting"
    print(
        f"queue of {bench_wire.LIMIT_PACKETS} packets: {burst.most_waiting} at most; "
        f"marks asked for from {bench_wire.ECN_PACKETS} waiting: {marks}"
    )


@app.command()
def verbs(
    rounds: Rounds = 15,
    seconds: RateSeconds = 0.5,
    trips: Trips = 5000,
    in_guest: Annotated[
        bool, typer.Option("--in-guest", help="Also compare with Linux's rxe in a virtual machine.")
    ] = False,
    xdp: Xdp = XdpMode.AUTO,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure RC against bare AF_XDP over one switch: 1 MiB WRITEs, 64-byte SENDs, round trips."""
    options = bench_verbs.Options(rounds, seconds, trips, in_guest, mode=xdp.value)
    outcome = bench_verbs.run(options, saying(quiet))
    if as_json:
        print(json.dumps(outcome.document(), indent=1))
    else:
        bench_programs.print_medians(outcome)
        send64 = outcome.send64()
        print(f"{'send64':22}{send64.median:>14,.0f} /s  [{send64.low:,.0f} to {send64.high:,.0f}]")
        bench_programs.print_ratios(outcome)


app.command()(bench_programs.programs)
app.command()(bench_policy.policy)
app.command()(bench_up.up)
app.command()(bench_capture.capture)
app.command(cls=bench_check.Command)(bench_check.check)
app.command()(bench_sim.sim)
app.command(cls=bench_recovery.Command)(bench_recovery.recovery)
app.command()(bench_ec.ec)
app.command()(bench_crossover.crossover)
app.command(cls=bench_spines.Command)(bench_spines.spines)
app.command()(bench_tails.tails)
app.command()(bench_event_log.event_log)
app.command()(bench_shift.shift)


def _bytes(text: str) -> int:
    size = units.parse_bytes(text)
    if size == 0:
        raise UserError("0 bytes take no time", hint="measure with more")
    return size
