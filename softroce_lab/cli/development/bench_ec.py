# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench ec`: how fast erasure codes are on this machine."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from softroce_lab import units
from softroce_lab.bench import ec as bench_ec
from softroce_lab.cli.options import Json, Quiet, saying


def ec(
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds to measure.")] = 21,
    size: Annotated[str, typer.Option(help="Bytes of data that each codes in a round.")] = "256MiB",
    working_set: Annotated[str, typer.Option(help="Bytes of data that are coded again.")] = "2MiB",
    chunk: Annotated[str, typer.Option(help="Size of a chunk.")] = "64KiB",
    k: Annotated[int, typer.Option(help="Chunks of data of a submessage.")] = 32,
    m: Annotated[int, typer.Option(help="Chunks of parity of a submessage.")] = 8,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure encoding and decoding of MDS and XOR codes on one core, beside ISA-L's functions."""
    options = bench_ec.Options(
        rounds,
        units.parse_bytes(size),
        units.parse_bytes(working_set),
        units.parse_bytes(chunk),
        k,
        m,
    )
    say = saying(quiet)
    outcome = bench_ec.run(options, lambda done: say(f"round {done} of {rounds}"))
    if as_json:
        print(json.dumps(outcome.document(), indent=1))
        return
    for name, value in outcome.intervals().items():
        low, high = value.low / 1e9, value.high / 1e9
        print(f"{name:12}{value.median / 1e9:>8.2f} GB/s  [{low:.2f} to {high:.2f}]")
    for name, ratio in outcome.ratios().items():
        print(f"{name} over ISA-L's: {ratio}")
