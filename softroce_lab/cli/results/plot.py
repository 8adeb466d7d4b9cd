# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results plot`: a figure of a run or a sweep, for a paper."""

from __future__ import annotations

import enum
import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from softroce_lab.cli import completion
from softroce_lab.cli.options import Json
from softroce_lab.cli.results.options import RunName
from softroce_lab.results import plots, recorded
from softroce_lab.results.recorded import Recorded
from softroce_lab.telemetry.rundir import SCHEMA_VERSION

app = typer.Typer(add_completion=False)

Kind = enum.StrEnum("Kind", {name.upper(): name for name in plots.KINDS})  # type: ignore[misc]
_CDF = Kind("cdf")


@app.command()
def plot(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN|SWEEP...",
            help="A run directory or a sweep's, or its name below ./runs or ./sweeps; of the kind "
            "ratios several. Default: latest.",
            autocompletion=completion.runs,
        ),
    ] = None,
    kind: Annotated[Kind, typer.Option(help="What is drawn.")] = _CDF,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="FILE.pdf, FILE.svg or FILE.png.")
    ] = Path("figure.pdf"),
    of: RunName = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="KEY=VALUE",
            help="Of the kind ratios: only these runs, such as loss=none; may be repeated.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw a figure for a paper: labels and units ready, the command and a digest in the file."""
    found, *others = (Recorded(recorded.find(each)) for each in runs or ["latest"])
    asked = plots.Asked(found, None if of is None else found.run(of), others, only or ())
    words = [
        "lab",
        "results",
        "plot",
        *(each.name for each in (found, *others)),
        "--kind",
        kind.value,
        *(["--run", of] if of else []),
        *(word for each in only or () for word in ("--only", each)),
    ]
    plots.save(asked, kind.value, output, shlex.join(words))
    if as_json:
        document = {"schema_version": SCHEMA_VERSION, "figure": str(output), "kind": kind.value}
        print(json.dumps(document | {"results_sha256": plots.digest(found)}, indent=1))
    else:
        print(output)
