# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results plot`: a figure of a run or a sweep, for a paper."""

from __future__ import annotations

import enum
import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from softroce_lab.cli.options import Json
from softroce_lab.cli.results.options import RunName, RunOrSweep
from softroce_lab.results import plots, recorded
from softroce_lab.results.recorded import Recorded
from softroce_lab.telemetry.rundir import SCHEMA_VERSION

app = typer.Typer(add_completion=False)

Kind = enum.StrEnum("Kind", {name.upper(): name for name in plots.KINDS})  # type: ignore[misc]
_CDF = Kind("cdf")


@app.command()
def plot(
    run: RunOrSweep = "latest",
    kind: Annotated[Kind, typer.Option(help="What is drawn.")] = _CDF,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="FILE.pdf, FILE.svg or FILE.png.")
    ] = Path("figure.pdf"),
    of: RunName = None,
    as_json: Json = False,
) -> None:
    """Draw a figure for a paper: labels and units ready, the command and a digest in the file."""
    found = Recorded(recorded.find(run))
    asked = plots.Asked(found, None if of is None else found.run(of))
    words = [
        "lab",
        "results",
        "plot",
        found.name,
        "--kind",
        kind.value,
        *(["--run", of] if of else []),
    ]
    plots.save(asked, kind.value, output, shlex.join(words))
    if as_json:
        document = {"schema_version": SCHEMA_VERSION, "figure": str(output), "kind": kind.value}
        print(json.dumps(document | {"results_sha256": plots.digest(found)}, indent=1))
    else:
        print(output)
