# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results export` and `lab results pack`: a run as a file for other tools and people."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from softroce_lab import units
from softroce_lab.cli.options import Json, print_document
from softroce_lab.cli.results.options import RunArgument, RunName, RunOrSweep, opened
from softroce_lab.results import artifact as artifacts
from softroce_lab.results import perfetto, recorded
from softroce_lab.results.recorded import Recorded

app = typer.Typer(add_completion=False)


@app.command()
def export(
    run: RunArgument = "latest",
    file: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The trace.")] = Path(
        "trace.json"
    ),
    of: RunName = None,
    as_json: Json = False,
) -> None:
    """Export a run as a trace that Perfetto opens; without --run its first one."""
    found = opened(run)
    count = perfetto.write(file, found, found.runs[0] if of is None else found.run(of))
    if as_json:
        print_document(trace=str(file), events=count)
    else:
        print(f"{file}: {units.format_count(count, 'event')}")


@app.command()
def pack(
    run: RunOrSweep = "latest",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The zip; default: NAME.zip in this folder."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Pack a run or a sweep for reviewers: results, code, a script that repeats and compares."""
    found = Recorded(recorded.find(run))
    made = artifacts.write(found, output or Path(f"{found.name}.zip"))
    if as_json:
        facts = {"bytes": made.size_bytes, "commit": made.commit, "note": made.note}
        print_document(artifact=str(made.path), **facts)
        return
    print(f"{made.path}: {units.format_bytes(made.size_bytes)}")
    print(f"the code of {made.commit} is in it" if made.commit else f"without code: {made.note}")
    folder = shlex.quote(made.path.stem)
    print("to repeat it, where it was copied to:")
    print(f"  unzip -d {folder} {shlex.quote(made.path.name)} && sh {folder}/reproduce.sh")
