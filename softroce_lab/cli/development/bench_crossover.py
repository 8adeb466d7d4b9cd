# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench crossover`: selective repeat or erasure coding, simulated beside the model."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from softroce_lab.bench.crossover import cells, grid, jump, ring, tables
from softroce_lab.cli.options import Json, Quiet, saying
from softroce_lab.errors import UserError
from softroce_lab.report import crossover_map, plots


def crossover(
    full: Annotated[
        bool, typer.Option("--full", help="From 128 KiB to 1 GiB and from 1e-6 to 0.1.")
    ] = False,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, max=1000, help="Seeds, from 1 on, added up.")
    ] = 1,
    state: Annotated[
        Path | None,
        typer.Option("--state", help="Keep finished cells in this file, and go on from there."),
    ] = None,
    sites: Annotated[
        bool, typer.Option("--sites", help="Ring all-reduce over two to eight sites instead.")
    ] = False,
    jumps: Annotated[
        bool, typer.Option("--jumps", help="The loss jumps a hundredfold in the middle instead.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the cells as a Parquet table.")
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option("--figure", help="Draw the map into this file: .pdf, .svg or .png."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare SDR-RDMA's selective repeat, erasure codes and sdr_auto with the paper's model."""
    if sites and jumps:
        raise UserError("--sites and --jumps are two experiments", hint="one at a time")
    if (sites or jumps) and (state is not None or rounds != 1 or figure is not None):
        what = "--state, --rounds and --figure are of the map"
        raise UserError(what, hint="without --sites and --jumps")
    if figure is not None:
        plots.need(figure)
    if sites or jumps:
        _others(sites=sites, full=full, output=output, as_json=as_json, say=saying(quiet))
        return
    options = dataclasses.replace(grid.FULL if full else grid.SHORT, rounds=rounds)
    found = cells.of(grid.run(options, saying(quiet), state))
    if output is not None:
        cells.save(found, output)
    if figure is not None:
        crossover_map.save(found, figure, shlex.join(["lab", *sys.argv[1:]]))
    if as_json:
        print(json.dumps([cells.row(each) for each in found], indent=1))
        return
    print("\n".join(tables.figures(found)))


def _others(
    *, sites: bool, full: bool, output: Path | None, as_json: bool, say: Callable[[str], None]
) -> None:
    """What is not the map."""
    if sites:
        options = ring.FULL if full else ring.SHORT
        rings = ring.run(options, say)
        rows, lines = [dataclasses.asdict(each) for each in rings], ring.table(rings)
        lines = [ring.title(options), "", *lines]
    else:
        jumped = jump.run(jump.Options(), say)
        rows, lines = [dataclasses.asdict(each) for each in jumped], jump.table(jumped)
    if output is not None:
        cells.save_rows(rows, output)
    print(json.dumps(rows, indent=1) if as_json else "\n".join(lines))
