# SPDX-License-Identifier: GPL-2.0-or-later
"""What `lab run` does with gates: print them, and write JUnit XML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from softroce_lab import junit
from softroce_lab.experiment.gates.expect import Judged
from softroce_lab.telemetry.rundir import give_to_user

Junit = Annotated[
    Path | None,
    typer.Option("--junit", metavar="FILE", help="Write runs and gates as JUnit XML, for CI."),
]


def show(judged: Sequence[Judged]) -> None:
    """A line a gate."""
    for each in judged:
        print(f"  {each}")


def held(judged: Sequence[Judged]) -> bool:
    """Whether all gates did."""
    return all(each.passed for each in judged)


def write_junit(
    path: Path | None, name: str, rows: Sequence[Mapping[str, Any]], judged: Sequence[Judged],
    axes: Sequence[str] = (),
) -> None:  # fmt: skip
    """A case for each run, and for each gate. UserError; nothing without a path."""
    if path is None:
        return
    runs = [_run(row, name, axes) for row in rows]
    gates = [
        junit.Case(name, each.text, None if each.passed else "failure", each.detail)
        for each in judged
    ]
    suites = [junit.Suite("runs", runs), *([junit.Suite("expect", gates)] if gates else [])]
    junit.write(path, name, suites)
    give_to_user(path)


def _run(row: Mapping[str, Any], name: str, axes: Sequence[str]) -> junit.Case:
    cell = "".join(f", {axis}={row[axis]}" for axis in axes)
    title = f"{row['transport']}/{row['seed']}{cell}"
    if row["verdict"] == "passed":
        return junit.Case(name, title)
    reasons = [str(reason) for reason in row["reasons"]]
    kind: junit.Kind = "error" if row["verdict"] == "error" else "failure"
    return junit.Case(name, title, kind, reasons[0] if reasons else "", text="\n".join(reasons))
