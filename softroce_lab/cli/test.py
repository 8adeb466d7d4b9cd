# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab test`: the test suite in its short form, or one line of it in full."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from softroce_lab import paths
from softroce_lab.errors import UserError

app = typer.Typer(add_completion=False)


@app.command(context_settings={"ignore_unknown_options": True})
def test(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- PYTEST-ARGUMENTS]", help="Go to pytest.")
    ] = None,
    full: Annotated[
        str | None, typer.Option(metavar="NAME", help="Run the long form of one line.")
    ] = None,
    list_lines: Annotated[
        bool, typer.Option("--list", help="List the lines that have a long form.")
    ] = False,
) -> None:
    """Run the test suite: every line in its short form, or one in full."""
    if not (paths.PROJECT_ROOT / "tests").is_dir():
        raise UserError("the tests are not here", hint="run ./lab test in a checkout")
    options = ["--list-full"] if list_lines else [] if full is None else ["--full", full]
    os.chdir(paths.PROJECT_ROOT)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *options, *(arguments or [])])  # noqa: S606
