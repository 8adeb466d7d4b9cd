# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results pack`: a run or a sweep as a zip that others can repeat with one command."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from softroce_lab import units
from softroce_lab.cli.options import Json
from softroce_lab.cli.results.options import RunOrSweep
from softroce_lab.results import artifact as artifacts
from softroce_lab.results import recorded
from softroce_lab.results.recorded import Recorded
from softroce_lab.telemetry.rundir import SCHEMA_VERSION

app = typer.Typer(add_completion=False)


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
        document = {
            "schema_version": SCHEMA_VERSION,
            "artifact": str(made.path),
            "bytes": made.size_bytes,
            "commit": made.commit,
            "note": made.note,
        }
        print(json.dumps(document, indent=1))
        return
    print(f"{made.path}: {units.format_bytes(made.size_bytes)}")
    print(f"the code of {made.commit} is in it" if made.commit else f"without code: {made.note}")
    folder = shlex.quote(made.path.stem)
    print("to repeat it, where it was copied to:")
    print(f"  unzip -d {folder} {shlex.quote(made.path.name)} && sh {folder}/reproduce.sh")
