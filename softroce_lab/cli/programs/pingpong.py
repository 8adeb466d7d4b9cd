# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab pingpong`: what ibv_rc_pingpong, ibv_uc_pingpong and ibv_ud_pingpong do and print."""

from __future__ import annotations

import enum
import functools
import ipaddress
import json
from collections.abc import Iterable
from typing import Annotated

import typer

from softroce_lab.cli import capture_options
from softroce_lab.cli.capture_options import Captured, CaptureFile, Snap, WithCapture
from softroce_lab.cli.modes import IN_A_LAB
from softroce_lab.cli.options import Json, Lab, Xdp, XdpMode, beside_file, saying
from softroce_lab.cli.programs.foreign import PingpongOptions
from softroce_lab.cli.programs.pair_options import (
    Client,
    Events,
    ExchangePort,
    LongQuiet,
    RxDepth,
    Server,
    TemporaryLab,
)
from softroce_lab.experiment.capturing import capturing
from softroce_lab.perftest import lab as perf_lab
from softroce_lab.perftest import pingpong as experiment
from softroce_lab.perftest.end import Address
from softroce_lab.perftest.lab import Where
from softroce_lab.perftest.pingpong import Options, Outcome
from softroce_lab.telemetry.capture_figures import SNAP_BYTES

app = typer.Typer(add_completion=False)


class Kind(enum.StrEnum):
    """Of a queue pair, as the programs' names have it."""

    RC = "rc"
    UC = "uc"
    UD = "ud"


class _Command(WithCapture, PingpongOptions):
    """A command with the flags of ibv_rc_pingpong and those of the lab."""

    modes = (*WithCapture.modes, IN_A_LAB)


@app.command(cls=_Command)
def pingpong(
    client: Client = None,
    server: Server = None,
    connection: Annotated[
        Kind, typer.Option("-c", "--connection", case_sensitive=False, help="Transport service.")
    ] = Kind.RC,
    size: Annotated[
        int | None, typer.Option("-s", "--size", help="Message size in bytes [4096; ud: 2048].")
    ] = None,
    mtu: Annotated[
        int | None, typer.Option("-m", "--mtu", help="Path MTU [1024; ud: the largest].")
    ] = None,
    rx_depth: RxDepth = 500,
    iterations: Annotated[int, typer.Option("-n", "--iters", help="Number of exchanges.")] = 1000,
    events: Events = False,
    port: ExchangePort = 18515,
    gid_index: Annotated[
        int, typer.Option("-g", "--gid-idx", min=0, help="GID index at a kernel host.")
    ] = perf_lab.GID_INDEX,
    file: TemporaryLab = None,
    lab: Lab = None,
    xdp: Xdp = XdpMode.AUTO,
    capture: Captured = None,
    capture_file: CaptureFile = None,
    snap: Snap = SNAP_BYTES,
    as_json: Json = False,
    quiet: LongQuiet = False,
) -> None:
    """Send a message back and forth between CLIENT and SERVER, as ibv_rc_pingpong does."""
    options = Options(connection.value, size, mtu, rx_depth, iterations, events, port, gid_index)
    options.check()
    wanted = capture_options.wanted(capture, snap, capture_file)
    say = saying(quiet)
    where = Where(beside_file(lab, file), file, "pingpong", xdp.value)
    suits = functools.partial(perf_lab.check_gids, gid_index=gid_index)
    with perf_lab.chosen(where, client, server, say, suits) as place:
        hosts = place.client, place.server
        with capturing(place.lab, wanted, (host.name for host in hosts)) as captured:
            outcome = experiment.run(place.lab, *hosts, options)
    if captured is not None:
        say(captured.summary())
    if as_json:
        seen = {"capture": captured.document()} if captured else {}
        print(json.dumps(outcome.document() | seen, indent=1))
    else:
        _print(outcome)


def _print(outcome: Outcome) -> None:
    for line in _addresses("local", outcome.client), _addresses("remote", outcome.server):
        if line:
            print(line)
    print(
        f"{outcome.bytes} bytes in {outcome.seconds:.2f} seconds = {outcome.mbit_per_second:.2f} "
        "Mbit/sec"
    )
    print(
        f"{outcome.iterations} iters in {outcome.seconds:.2f} seconds = "
        f"{outcome.usec_per_iteration:.2f} usec/iter"
    )


def _addresses(side: str, each: Iterable[Address]) -> str:
    lines = []
    for one in each:
        ip = ipaddress.ip_address(one.ip)
        gid = f"::ffff:{ip}" if ip.version == 4 else str(ip)
        label = f"{side} address:".ljust(15)
        lines.append(f"  {label} LID 0x0000, QPN {one.qpn:#08x}, PSN {one.psn:#08x}, GID {gid}")
    return "\n".join(lines)
