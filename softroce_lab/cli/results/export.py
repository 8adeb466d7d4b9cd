# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results export`: a run in another tool's format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from softroce_lab import units
from softroce_lab.cli.options import Json
from softroce_lab.cli.results.options import RunArgument, RunName, opened
from softroce_lab.results import perfetto
from softroce_lab.telemetry.rundir import SCHEMA_VERSION

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
        document = {"schema_version": SCHEMA_VERSION, "trace": str(file), "events": count}
        print(json.dumps(document, indent=1))
    else:
        print(f"{file}: {units.format_count(count, 'event')}")
