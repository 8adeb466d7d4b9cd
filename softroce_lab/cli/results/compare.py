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
from softroce_lab.report import comparison, recorded, sign_tests, unlike
from softroce_lab.report.comparison import Comparison, Passed
from softroce_lab.report.recorded import Recorded
from softroce_lab.statistics import ALPHA
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
        bool,
        typer.Option(
            "--fail-on-worse", help="Exit with 1 if a figure is worse, or more runs failed."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare runs or sweeps, seed by seed: better, worse, or no difference shown."""
    if len(runs) < 2:
        raise UserError("two directories are compared, or more", hint=_ALONE)
    first, *others = (Recorded(_found(each)) for each in runs)
    if any(each.is_sweep != first.is_sweep for each in others):
        raise UserError("a run and a sweep cannot be compared")
    for directory in (first, *others):
        if directory.warning:
            typer.echo(f"lab: {directory.path} is {directory.warning}", err=True)
    found = {str(each.path): comparison.compared(first, each) for each in others}
    notes = {str(each.path): list(unlike.notes(first, each)) for each in others}
    if as_json:
        compared = [
            {
                "with": path,
                "notes": notes[path],
                "figures": [line.document() for line in each.lines],
                "passed": [line.document() for line in each.passed],
            }
            for path, each in found.items()
        ]
        document = {"schema_version": SCHEMA_VERSION, "first": str(first.path)}
        print(json.dumps(document | {"comparisons": compared}, indent=1))
    else:
        for path, each in found.items():
            _print(str(first.path), path, each, changed=changed)
            for note in notes[path]:
                print(f"  {note}")
    if fail_on_worse and any(each.worse for each in found.values()):
        raise typer.Exit(ExitCode.FAILED)


def _found(name: str) -> Path:
    try:
        return recorded.find(name)
    except UserError as error:
        if name not in registry.transports():
            raise
        raise UserError(f"{name} is a transport, not a run", hint=_ALONE) from error


def _print(first: str, second: str, found: Comparison, *, changed: bool) -> None:
    print(f"{second}, compared with {first}")
    shown = [line for line in found.lines if not changed or line.verdict != _NO_DIFFERENCE]
    table = Table(box=None, pad_edge=False)
    titles = ("cell", "transport", "figure", "first", "second", "second / first", "pairs")
    for title in (*titles, "verdict"):
        table.add_column(title, no_wrap=True)
    for line in shown:
        ratio = line.ratio
        factor = f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
        table.add_row(line.cell, line.transport, line.figure, line.shown(line.first),
                      line.shown(line.second), factor, str(line.pairs), line.verdict)  # fmt: skip
    if shown:
        console = Console()
        (console if console.is_terminal else Console(width=10_000)).print(table)
    elif found.lines:
        count = units.format_count(len(found.lines), "figure")
        print(f"  {_NO_DIFFERENCE} in any of {count}")
    for each in found.passed:
        _print_passed(first, second, each)
    fewest = sign_tests.fewest_pairs(ALPHA)
    few = sum(line.pairs < fewest for line in found.lines)
    if few:
        print(f"  {few} of {len(found.lines)} figures have fewer than {fewest} pairs: "
              "so few seeds cannot show a difference")  # fmt: skip


def _print_passed(first: str, second: str, found: Passed) -> None:
    """What the figures leave out: runs that failed, and seeds without a partner."""
    name = found.transport if found.cell == "all" else f"{found.cell}, {found.transport}"
    ends = []
    if found.first_only:
        ends.append(f"passed in {first} and failed in {second}: {_seeds(found.first_only)}")
    if found.second_only:
        ends.append(f"failed in {first} and passed in {second}: {_seeds(found.second_only)}")
    for each in ends:
        print(f"  {name}: {each}")
    if ends:
        print(f"  {name}: {found.verdict}, by the runs that passed")
    if found.neither:
        print(f"  {name}: failed in both: {_seeds(found.neither)}")
    if found.missing:
        print(f"  {name}: in one of the two alone: {_seeds(found.missing)}")


def _seeds(numbers: Sequence[int]) -> str:
    return f"seed{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
