# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results show`: what was run, and the table of its figures, from a run directory."""

from __future__ import annotations

import json

import typer

from softroce_lab.cli import run_table
from softroce_lab.cli.options import Json
from softroce_lab.cli.results.options import RunOrSweep
from softroce_lab.experiment.hosts import program_words
from softroce_lab.experiment.sweep import table as sweep_table
from softroce_lab.results import listing, recorded, sweeps
from softroce_lab.results.recorded import Recorded, name_of, programs_of

app = typer.Typer(add_completion=False)


@app.command()
def show(run: RunOrSweep = "latest", as_json: Json = False) -> None:
    """Show what was run, and the table of the run or of the sweep. --json prints the manifest."""
    found = Recorded(recorded.find(run))
    if as_json:
        print(json.dumps(found.manifest | {"run_dir": str(found.path)}, indent=1))
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
    run_table.show(names, lines)
    for note in notes:
        print(f"  {note}")
    for run in found.runs:
        for line in program_words.lines(name_of(run), programs_of(run)):
            print(f"  {line}")
