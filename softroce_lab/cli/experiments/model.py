# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab model`: what published formulas predict, without running anything."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from softroce_lab import units
from softroce_lab.cli.options import Json
from softroce_lab.errors import UserError
from softroce_lab.model import ring, sdr
from softroce_lab.model.completion import Completion
from softroce_lab.model.ring import AllReduce
from softroce_lab.statistics import marked
from softroce_lab.telemetry.rundir import SCHEMA_VERSION

app = typer.Typer(add_completion=False, no_args_is_help=True)

_WIDTH = 120
_COLUMNS = (
    "lost: probability that a chunk is lost. "
    "slowdown, p99.9's: mean and p99.9 over the time without loss and parity.\n"
    "fallback: probability that any submessage cannot be decoded."
)
_DISTANCE = "3750km"
_RUNS, _MOST_RUNS = 2000, 1_000_000
_QUANTILES = {"p50": 0.5, "p99": 0.99, "p99_9": 0.999}


@app.callback()
def model() -> None:
    """Print what published formulas of transports predict, without running anything."""


@app.command("sdr")
def sdr_command(
    message: Annotated[
        list[str] | None,
        typer.Option(metavar="BYTES", help="Size; may be repeated. [default: 128MiB]"),
    ] = None,
    loss: Annotated[
        list[str] | None,
        typer.Option(metavar="PERCENT", help="Lost chunks; may be repeated. [default: 0.1%]"),
    ] = None,
    packet: Annotated[
        str | None,
        typer.Option(metavar="BYTES", help="--loss is of packets of this size, not of chunks."),
    ] = None,
    distance: Annotated[
        str | None,
        typer.Option(help=f"RTT in ms = km / 150. [default: {_DISTANCE}]"),
    ] = None,
    rtt: Annotated[
        str | None, typer.Option(metavar="TIME", help="Round-trip time, instead of --distance.")
    ] = None,
    bandwidth: Annotated[str, typer.Option(help="Rate of the link.")] = "400Gbit",
    chunk: Annotated[str, typer.Option(metavar="BYTES", help="Size of a chunk.")] = "64KiB",
    k: Annotated[int, typer.Option(help="Chunks of data of a submessage.")] = 32,
    m: Annotated[int, typer.Option(help="Chunks of parity of a submessage.")] = 8,
    alpha: Annotated[float, typer.Option(help="RTO = RTT + alpha RTT, of sr_rto.")] = 2.0,
    beta: Annotated[float, typer.Option(help="Slack of the fallback timer, in RTTs.")] = 1.0,
    sites: Annotated[
        int | None, typer.Option(help="Ring all-reduce of the message over so many sites.")
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(min=2, max=_MOST_RUNS, help=f"Draws of the all-reduce. [default: {_RUNS}]"),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the draws. [default: 1]")] = None,
    as_json: Json = False,
) -> None:
    """Print completion times of SDR-RDMA: selective repeat, erasure codes, ring all-reduce."""
    if distance is not None and rtt is not None:
        raise UserError("--distance and --rtt say the same", hint="give one of them")
    for option, value in (("--runs", runs), ("--seed", seed)):
        if sites is None and value is not None:
            raise UserError(f"{option}: no effect without --sites", hint="leave it out")
    draws = _RUNS if runs is None else runs
    chunk_bytes = units.parse_bytes(chunk)
    common = sdr.Scenario(
        rtt_ns=units.parse_time_ns(rtt) if rtt is not None else _rtt_ns(distance or _DISTANCE),
        bandwidth_bps=units.parse_rate_bps(bandwidth),
        chunk_bytes=chunk_bytes,
        alpha=alpha,
        beta=beta,
        data_chunks=k,
        parity_chunks=m,
    )
    packets = 1 if packet is None else _packets(chunk_bytes, units.parse_bytes(packet))
    if sites is not None:
        ring.steps_of(sites)
    cells = [
        _cell(
            dataclasses.replace(
                common,
                message_bytes=-(-units.parse_bytes(size) // (sites or 1)),
                loss=sdr.chunk_loss(float(units.parse_percent(share)), packets),
            ),
            sites, draws, 1 if seed is None else seed,
        )
        for size, share in itertools.product(message or ["128MiB"], loss or ["0.1%"])
    ]  # fmt: skip
    if as_json:
        print(json.dumps(_document(common, sites, cells), indent=1))
    else:
        _print(common, sites, draws, cells)


def _rtt_ns(distance: str) -> float:
    return sdr.rtt_of_ns(units.parse_distance_m(distance) / 1000)


def _packets(chunk_bytes: int, packet_bytes: int) -> int:
    if packet_bytes == 0 or chunk_bytes % packet_bytes:
        raise UserError(
            f"a chunk of {chunk_bytes} bytes is no multiple of a packet of {packet_bytes} bytes"
        )
    return chunk_bytes // packet_bytes


def _cell(scenario: sdr.Scenario, sites: int | None, runs: int, seed: int) -> dict[str, Any]:
    """One message size and loss, by all schemes."""
    steps = 1 if sites is None else ring.steps_of(sites)
    lossless_ns = steps * scenario.lossless_ns
    schemes: dict[str, dict[str, Any]] = {}
    for name, completion in sdr.predict(scenario).items():
        found: Completion | AllReduce = completion
        schemes[name] = about = {}
        if sites is not None:
            stream = np.random.default_rng(seed)
            found = drawn = ring.all_reduce(completion, sites, runs, stream)
            about["standard_error_ns"] = drawn.standard_error_ns
            about["mean_bounds_ns"] = [drawn.least_mean_ns, drawn.most_mean_ns]
        about["mean_ns"] = found.mean_ns
        about |= {f"{each}_ns": found.quantile_ns(share) for each, share in _QUANTILES.items()}
        about["slowdown"] = found.mean_ns / lossless_ns
        about["slowdown_p99_9"] = about["p99_9_ns"] / lossless_ns
    for name in schemes.keys() & {"mds", "xor"}:
        schemes[name]["fallback"] = scenario.fallback(name)
    return {
        "message_bytes": scenario.message_bytes * (sites or 1),
        "chunks": scenario.chunks,
        "loss": scenario.loss,
        "lossless_ns": lossless_ns,
        "schemes": schemes,
        "fastest": {
            figure: min(schemes, key=lambda name: schemes[name][figure])
            for figure in ("mean_ns", "p99_9_ns")
        },
    }


def _document(
    common: sdr.Scenario, sites: int | None, cells: list[dict[str, Any]]
) -> dict[str, Any]:
    shared = {
        name: getattr(common, name)
        for name in ("rtt_ns", "bandwidth_bps", "chunk_bytes", "alpha", "beta", "data_chunks",
                     "parity_chunks")
    }  # fmt: skip
    return {
        "schema_version": SCHEMA_VERSION,
        "model": "SDR-RDMA, arXiv 2505.05366v2",
        **shared,
        "sites": sites,
        "cells": cells,
    }


def _print(common: sdr.Scenario, sites: int | None, runs: int, cells: list[dict[str, Any]]) -> None:
    print(
        f"SDR-RDMA's model: RTT {units.format_duration(common.rtt_ns)}, "
        f"{units.format_rate(common.bandwidth_bps)}, chunks of "
        f"{units.format_bytes(common.chunk_bytes)}, "
        f"(k, m) = ({common.data_chunks}, {common.parity_chunks})"
        + ("" if sites is None else f"; ring all-reduce over {sites} sites, {runs:,} draws")
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("message", "lost", "scheme", "mean", "p50", "p99", "p99.9", "slowdown",
                    "p99.9's", "fallback"):  # fmt: skip
        table.add_column(heading, justify="left" if heading == "scheme" else "right")
    for cell in cells:
        place = [units.format_bytes(cell["message_bytes"]), f"{cell['loss']:.3g}"]
        for name, about in cell["schemes"].items():
            times = [units.format_duration(about[f"{each}_ns"]) for each in ("mean", *_QUANTILES)]
            if sites is not None:
                times[2] = marked(times[2], 990, runs)
                times[3] = marked(times[3], 999, runs)
            fallback = about.get("fallback")
            table.add_row(
                *place, name, *times, f"{about['slowdown']:.3f}", f"{about['slowdown_p99_9']:.3f}",
                "" if fallback is None else f"{fallback:.2g}",
            )  # fmt: skip
            place = ["", ""]
    Console(width=_WIDTH).print(table)
    print(_COLUMNS)
