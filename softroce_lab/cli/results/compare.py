# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab compare`: runs or sweeps side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from softroce_lab import units
from softroce_lab.cli import completion
from softroce_lab.cli.options import Json
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.recovery import registry
from softroce_lab.report import comparison, recorded
from softroce_lab.report.comparison import Line
from softroce_lab.report.recorded import Recorded
from softroce_lab.telemetry.rundir import SCHEMA_VERSION

app = typer.Typer(add_completion=False)

_NO_DIFFERENCE = "no difference shown"
_ALONE = (
    "to compare transports, run each alone, such as lab run incast --transport irn "
    "--set seeds=10, then lab compare the directories; lab list shows what is here"
)


@app.command()
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="A B...",
            help="Run directories or sweeps; the others are compared with the first.",
            autocompletion=completion.runs,
        ),
    ],
    changed: Annotated[
        bool, typer.Option("--changed", help="Show only what is better or worse.")
    ] = False,
    fail_on_worse: Annotated[
        bool, typer.Option("--fail-on-worse", help="Exit with 1 if anything is worse.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare runs or sweeps, seed by seed: better, worse, or no difference shown."""
    if len(runs) < 2:
        raise UserError("two directories are compared, or more", hint=_ALONE)
    first, *others = (Recorded(_found(each)) for each in runs)
    if any(each.is_sweep != first.is_sweep for each in others):
        raise UserError("a run and a sweep cannot be compared")
    found = {str(each.path): comparison.compared(first, each) for each in others}
    if as_json:
        compared = [
            {"with": path, "figures": [line.document() for line in lines]}
            for path, lines in found.items()
        ]
        document = {"schema_version": SCHEMA_VERSION, "first": str(first.path)}
        print(json.dumps(document | {"comparisons": compared}, indent=1))
    else:
        for path, lines in found.items():
            _print(str(first.path), path, lines, changed=changed)
    if fail_on_worse and any(line.verdict == "worse" for lines in found.values() for line in lines):
        raise typer.Exit(ExitCode.FAILED)


def _found(name: str) -> Path:
    try:
        return recorded.find(name)
    except UserError as error:
        if name not in registry.transports():
            raise
        raise UserError(f"{name} is a transport, not a run", hint=_ALONE) from error


def _print(first: str, second: str, lines: Sequence[Line], *, changed: bool) -> None:
    print(f"{second}, compared with {first}")
    table = Table(box=None, pad_edge=False)
    for title in ("cell", "transport", "figure", "first", "second", "second / first", "verdict"):
        table.add_column(title, no_wrap=True)
    shown_lines = [line for line in lines if not changed or line.verdict != _NO_DIFFERENCE]
    for line in shown_lines:
        ratio = line.ratio
        shown = f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
        table.add_row(line.cell, line.transport, line.figure, line.shown(line.first),
                      line.shown(line.second), shown, line.verdict)  # fmt: skip
    if shown_lines:
        console = Console()
        (console if console.is_terminal else Console(width=10_000)).print(table)
    else:
        print(f"  no difference shown in any of {units.format_count(len(lines), 'figure')}")
    fewest, needed = min(line.pairs for line in lines), comparison.seeds_needed(len(lines))
    if fewest < needed:
        print(f"  {fewest} seeds are in both; {needed} are needed to show a difference "
              f"in one of {len(lines)} figures")  # fmt: skip
