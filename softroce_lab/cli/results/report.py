# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results report`: a run or a sweep as one HTML page that opens offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from softroce_lab import units
from softroce_lab.cli.options import Json, Quiet, print_document, say
from softroce_lab.cli.results.cost import searched
from softroce_lab.cli.results.options import (
    RunOrSweep,
    Trust,
    need_run,
    origin,
    runs_of,
)
from softroce_lab.inputs.yaml_source import Origin
from softroce_lab.results import recorded
from softroce_lab.results.blame.charges import USUAL_RUNS
from softroce_lab.results.blame.investigation import Investigation
from softroce_lab.results.page import assemble, blamed
from softroce_lab.results.recorded import Recorded

app = typer.Typer(add_completion=False)


@app.command()
def report(
    run: RunOrSweep = "latest",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The page; default: report.html in the directory.",
        ),
    ] = None,
    cost: Annotated[
        bool,
        typer.Option(
            "--cost",
            help="With what each loss cost, by runs without it: see lab results explain --cost.",
        ),
    ] = False,
    trust: Trust = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write one HTML page of a run or a sweep: what was run, verdicts, times, losses, messages.

    It needs no network, and contains all its data and scripts.
    """
    found = Recorded(recorded.find(run))
    path = output or found.path / "report.html"
    text = assemble.page(found, _blamed(found, origin(trusted=trust), quiet=quiet) if cost else "")
    assemble.write(path, text)
    size = len(text.encode())
    if as_json:
        print_document(page=str(path), bytes=size, run_dir=str(found.path))
        return
    if found.warning:
        say(f"{found.path} is {found.warning}")
    print(f"{path}: {units.format_bytes(size)}")


def _blamed(found: Recorded, whose: Origin, *, quiet: bool) -> str:
    """Of each transport's run with the first seed. UserError for a sweep."""
    need_run(found)
    parts = []
    for run in runs_of(found, None):
        known = Investigation.of(found, run, origin=whose)
        parts.append((known, searched(known, USUAL_RUNS, quiet=quiet)))
    return blamed.section(parts)
