# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench crossover`: selective repeat or erasure coding, simulated beside the model."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from softroce_lab.bench import crossover as bench_crossover
from softroce_lab.cli.options import Json, Quiet, saying


def crossover(
    full: Annotated[
        bool, typer.Option("--full", help="Up to 1 GiB, and four times as many messages.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the cells as a Parquet table.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare SDR-RDMA's selective repeat, erasure codes and sdr_auto with the paper's model."""
    options = bench_crossover.FULL if full else bench_crossover.SHORT
    cells = bench_crossover.run(options, saying(quiet))
    if output is not None:
        bench_crossover.save(cells, output)
    if as_json:
        rows = [{**dataclasses.asdict(each), "agrees": each.agrees} for each in cells]
        print(json.dumps(rows, indent=1))
        return
    print("\n".join(bench_crossover.table(cells)))
    print("\n".join(["", *bench_crossover.summary(cells)]))
