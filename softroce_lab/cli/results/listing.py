# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results ls` and `lab results show`: which runs are here, and what one of them found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from softroce_lab.cli import tables
from softroce_lab.cli.options import Json, print_document, print_json
from softroce_lab.cli.results.options import RunOrSweep
from softroce_lab.experiment.hosts import program_words
from softroce_lab.experiment.sweep import table as sweep_table
from softroce_lab.results import listing, recorded, sweeps
from softroce_lab.results.recorded import SWEEPS, Recorded, name_of, programs_of
from softroce_lab.telemetry.rundir import RUNS

app = typer.Typer(add_completion=False)


@app.command("ls")
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
        print_document(entries=[each.document() for each in found])
        return
    if not found:
        print("no run directory is here")
        return
    made = tables.table("directory<", "verdict<", "clock<", "runs<", "transports<", "file<")
    made.columns[0].no_wrap = True
    for each in found:
        verdict = each.verdict if each.state == "done" else each.state
        runs = str(each.runs) if each.done == each.runs else f"{each.done} of {each.runs}"
        row = (verdict, each.clock, runs, ", ".join(each.transports), each.file)
        if each.kind == "damaged":
            row = ("damaged", "", "", "", "")
        made.add_row(str(each.path), *row)
    tables.show(made)
    for each in found:
        if each.kind == "damaged":
            print(f"damaged: {each.problem.splitlines()[0]}")


@app.command()
def show(run: RunOrSweep = "latest", as_json: Json = False) -> None:
    """Show what was run, and the table of the run or of the sweep. --json prints the manifest."""
    found = Recorded(recorded.find(run))
    if as_json:
        print_json(found.manifest | {"run_dir": str(found.path)})
        return
    for title, text in listing.facts(found):
        print(f"{title:12}  {text}")
    for line in listing.problems(found):
        print(f"  {line}")
    if found.is_sweep:
        rows = sweeps.rows(found)
        if len(rows) != found.manifest.get("done"):  # --only, which keeps the other rows
            print(f"  the table has {len(rows)} rows, those of earlier commands too")
        print("", *sweep_table.sections(sweeps.axes(found), rows), sep="\n", end="")
    elif found.manifest.get("runs"):
        _print(found)
    print(f"\n{found.path}")


def _print(found: Recorded) -> None:
    names, lines, notes = listing.table(found)
    print()
    tables.show_figures(names, lines)
    for note in notes:
        print(f"  {note}")
    for run in found.runs:
        for line in program_words.lines(name_of(run), programs_of(run)):
            print(f"  {line}")
