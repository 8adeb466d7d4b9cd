# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab model`: what published formulas predict, without running anything."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from softroce_lab import units
from softroce_lab.cli import tables
from softroce_lab.cli.options import Json, print_document
from softroce_lab.errors import UserError
from softroce_lab.inputs.validation import did_you_mean
from softroce_lab.statistics import marked
from softroce_lab.transports.model import ring, sdr
from softroce_lab.transports.model.ring import AllReduce
from softroce_lab.transports.model.selective_repeat import Completion

app = typer.Typer(add_completion=False, no_args_is_help=True)

_WIDTH = 120
_COLUMNS = (
    "lost: probability that a chunk is lost. "
    "slowdown, p99.9's: mean and p99.9 over the time without loss and parity.\n"
    "fallback: probability that any submessage cannot be decoded."
)
_MOST_DRAWS = 1_000_000
_QUANTILES = {"p50": 0.5, "p99": 0.99, "p99_9": 0.999}


@app.callback()
def model() -> None:
    """Print what published formulas of transports predict, without running anything."""


_PARAMETERS = {
    "message": ("128MiB", "size of the message; may be repeated"),
    "loss": ("0.1%", "share of lost chunks; may be repeated"),
    "packet": ("", "size of a packet: then loss is the share of lost packets"),
    "distance": ("3750km", "length of the path: RTT in ms = km / 150"),
    "rtt": ("", "round-trip time, instead of distance"),
    "bandwidth": ("400Gbit", "rate of the link"),
    "chunk": ("64KiB", "size of a chunk"),
    "k": ("32", "chunks of data of a submessage"),
    "m": ("8", "chunks of parity of a submessage"),
    "alpha": ("2", "RTO = RTT + alpha RTT, of sr_rto"),
    "beta": ("1", "slack of the fallback timer, in RTTs"),
    "sites": ("", "ring all-reduce of the message over so many sites"),
    "draws": ("2000", "draws of the all-reduce"),
}
"""The keys of --set: their usual values, and what they are."""

_HELP = "Print completion times of SDR-RDMA: selective repeat, erasure codes, ring all-reduce.\n\n"
_HELP += "The keys of --set:\n\n" + "\n\n".join(
    f"{key}: {about}{f' ({usual})' if usual else ''}."
    for key, (usual, about) in _PARAMETERS.items()
)


@app.command("sdr", help=_HELP)
def sdr_command(
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Set a parameter, as below; may be repeated."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the draws. [default: 1]")] = None,
    as_json: Json = False,
) -> None:
    """Print completion times of SDR-RDMA's model."""
    given = _given(changes or ())
    sites = _whole(given, "sites") if "sites" in given else None
    if "distance" in given and "rtt" in given:
        raise UserError("--set distance and --set rtt say the same", hint="give one of them")
    for option, is_given in {"--set draws": "draws" in given, "--seed": seed is not None}.items():
        if sites is None and is_given:
            raise UserError(f"{option}: no effect without --set sites=N", hint="leave it out")
    usual = {key: [value] for key, (value, _) in _PARAMETERS.items()}
    values = usual | given
    draws = _whole(values, "draws", least=2, most=_MOST_DRAWS)
    chunk_bytes = units.parse_bytes(values["chunk"][-1])
    rtt = values["rtt"][-1]
    common = sdr.Scenario(
        rtt_ns=units.parse_time_ns(rtt) if rtt else _rtt_ns(values["distance"][-1]),
        bandwidth_bps=units.parse_rate_bps(values["bandwidth"][-1]),
        chunk_bytes=chunk_bytes,
        alpha=_number(values, "alpha"),
        beta=_number(values, "beta"),
        data_chunks=_whole(values, "k"),
        parity_chunks=_whole(values, "m"),
    )
    packet = values["packet"][-1]
    packets = _packets(chunk_bytes, units.parse_bytes(packet)) if packet else 1
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
        for size, share in itertools.product(values["message"], values["loss"])
    ]  # fmt: skip
    if as_json:
        print_document(**_document(common, sites, cells))
    else:
        _print(common, sites, draws, cells)


def _given(changes: Iterable[str]) -> dict[str, list[str]]:
    """The values of each key of --set. UserError."""
    given: dict[str, list[str]] = {}
    for text in changes:
        key, equals, value = text.partition("=")
        if not (equals and value):
            raise UserError(f"--set {text}: expected KEY=VALUE", hint="such as --set loss=1%")
        if key not in _PARAMETERS:
            hint = did_you_mean(key, list(_PARAMETERS))
            raise UserError(f"--set {text}: the model has no {key}", hint=hint)
        given.setdefault(key, []).append(value)
    return given


def _number(values: Mapping[str, Sequence[str]], key: str) -> float:
    try:
        return float(values[key][-1])
    except ValueError:
        raise UserError(f"--set {key}={values[key][-1]}: expected a number") from None


def _whole(
    values: Mapping[str, Sequence[str]],
    key: str,
    *,
    least: int | None = None,
    most: int | None = None,
) -> int:
    text = values[key][-1]
    try:
        number = int(text)
    except ValueError:
        raise UserError(f"--set {key}={text}: expected a whole number") from None
    if (least is not None and number < least) or (most is not None and number > most):
        bounds = f"at least {least}" + ("" if most is None else f", at most {most:,}")
        raise UserError(f"--set {key}={text}: expected {bounds}")
    return number


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
    table = tables.table("message", "lost", "scheme<", "mean", "p50", "p99", "p99.9", "slowdown",
                         "p99.9's", "fallback")  # fmt: skip
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
