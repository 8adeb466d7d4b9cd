# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench`: how fast the lab's parts are, each beside what bounds it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated

import typer

from softroce_lab import units
from softroce_lab.cli.options import Json, Quiet, Xdp, XdpMode
from softroce_lab.errors import UserError
from softroce_lab.experiment import bench_engine, bench_path

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure how fast the lab is on this machine."""


@app.command()
def engine(
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved pairs to measure.")] = 21,
    size: Annotated[str, typer.Option(help="Moved by either in a round.")] = "256MiB",
    cpu: Annotated[int | None, typer.Option(help="Core to run on; by default the last.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Packets a second of two RNICs in memory on one core, beside a loop of copies and CRCs."""
    options = bench_engine.Options(rounds, _bytes(size), cpu)
    say = _say(quiet)
    outcome = bench_engine.run(options, lambda done: say(f"round {done} of {rounds}"))
    if as_json:
        print(json.dumps(outcome.document(), indent=1))
        return
    for name, value in outcome.intervals().items():
        print(f"{name:8}{value.median:>12,.0f} packets/s  [{value.low:,.0f} to {value.high:,.0f}]")
    print(f"{'ratio':8}{outcome.ratio}")


@app.command()
def path(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; intervals want 15.")] = 15,
    seconds: Annotated[float, typer.Option(min=0.05, help="Length of a bare sample.")] = 0.5,
    transfer: Annotated[str, typer.Option(help="Size of a csa_ud transfer.")] = "256MiB",
    xdp: Xdp = XdpMode.AUTO,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What a path of three switches carries: bare sockets, switches, loss, csa_ud, TCP, UDP."""
    options = bench_path.Options(rounds, seconds, _bytes(transfer), mode=xdp.value)
    outcome = bench_path.run(options, _say(quiet))
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


def _bytes(text: str) -> int:
    size = units.parse_bytes(text)
    if size == 0:
        raise UserError("0 bytes take no time", hint="measure with more")
    return size


def _say(quiet: bool) -> Callable[[str], None]:
    return (lambda _: None) if quiet else (lambda text: typer.echo(f"lab: {text}", err=True))
