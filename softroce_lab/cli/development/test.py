# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab test`: the test suite without its slow tests, all of it, or one line of it in full."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from softroce_lab import paths
from softroce_lab.errors import EnvironmentLackError, ExitCode, UserError

app = typer.Typer(add_completion=False)

# pytest's own exit codes (pytest.ExitCode) in the words of the lab's.
_EXIT_CODES = {0: ExitCode.DONE, 2: ExitCode.INTERRUPTED, 4: ExitCode.USAGE, 5: ExitCode.USAGE}


@app.command()
def test(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- PYTEST_ARGUMENTS]", help="Arguments for pytest."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also run the slow tests of tests/slow.txt.")
    ] = False,
    full: Annotated[
        str | None, typer.Option(metavar="NAME", help="Run only the test NAME, in its long form.")
    ] = None,
    list_lines: Annotated[
        bool, typer.Option("--list", help="List the tests that have a long form.")
    ] = False,
) -> None:
    """Run the quick tests of every part, all tests, or one test in its long form."""
    if not (paths.PROJECT_ROOT / "tests").is_dir():
        raise UserError("the tests are not here", hint="run ./lab test in a checkout")
    try:
        import pytest
    except ImportError as error:
        raise EnvironmentLackError("pytest", hint="run ./lab test in a checkout") from error
    if everything and full is not None:
        raise UserError(
            "--all, or --full?", hint="--full runs one line only, --all all but long forms"
        )
    os.chdir(paths.PROJECT_ROOT)
    code = pytest.main([*_options(everything, full, list_lines), *(arguments or [])])
    raise typer.Exit(_EXIT_CODES.get(code, ExitCode.FAILED))


def _options(everything: bool, full: str | None, list_lines: bool) -> list[str]:
    if list_lines:
        return ["--list-full", "-qq"]
    if full is not None:
        return ["--full", full]
    return [] if everything else ["--quick"]
