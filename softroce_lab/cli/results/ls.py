# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results ls`: the run directories that are here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from softroce_lab.cli.options import Json
from softroce_lab.results import listing
from softroce_lab.results.recorded import SWEEPS
from softroce_lab.telemetry.rundir import RUNS, SCHEMA_VERSION

app = typer.Typer(add_completion=False)


@app.command()
def list_runs(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIR]...", help="Parents of run directories; default: runs, sweeps."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List runs and sweeps, the newest first: what was run, from which file, with which result."""
    found = list(listing.entries(folders or [RUNS, SWEEPS]))
    if as_json:
        document = {"schema_version": SCHEMA_VERSION, "entries": [e.document() for e in found]}
        print(json.dumps(document, indent=1))
        return
    if not found:
        print("no run directory is here")
        return
    table = Table(box=None, pad_edge=False)
    for title in ("directory", "verdict", "clock", "runs", "transports", "file"):
        table.add_column(title, no_wrap=title == "directory")
    for each in found:
        verdict = each.verdict if each.state == "done" else each.state
        runs = str(each.runs) if each.done == each.runs else f"{each.done} of {each.runs}"
        row = (verdict, each.clock, runs, ", ".join(each.transports), each.file)
        if each.kind == "damaged":
            row = ("damaged", "", "", "", "")
        table.add_row(str(each.path), *row)
    console = Console()
    (console if console.is_terminal else Console(width=10_000)).print(table)
    for each in found:
        if each.kind == "damaged":
            print(f"damaged: {each.problem.splitlines()[0]}")
