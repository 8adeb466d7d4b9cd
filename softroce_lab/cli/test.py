# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab test`: the test suite without its slow tests, all of it, or one line of it in full."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Annotated

import typer

from softroce_lab import paths
from softroce_lab.errors import EnvironmentLackError, ExitCode, UserError

app = typer.Typer(add_completion=False)

_MOST_WORKERS = 4  # the kernel sets up one link at a time, whoever asks

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
    """Run the quick tests of every part, all tests, or one test in its long form.

    Tests run in one process per processor; those of named files (and -- -n 0) run in one process.
    """
    if not (paths.PROJECT_ROOT / "tests").is_dir():
        raise UserError("the tests are not here", hint="run ./lab test in a checkout")
    if not (find_spec("pytest") and find_spec("xdist")):
        raise EnvironmentLackError("pytest and pytest-xdist", hint="run ./lab test in a checkout")
    if everything and full is not None:
        raise UserError(
            "--all, or --full?", hint="--full runs one line only, --all all but long forms"
        )
    import pytest

    os.chdir(paths.PROJECT_ROOT)
    options = _options(everything, full, list_lines)
    if full is None and not list_lines:
        options += _workers(arguments or [])
    code = pytest.main([*options, *(arguments or [])])
    raise typer.Exit(_EXIT_CODES.get(code, ExitCode.FAILED))


def _options(everything: bool, full: str | None, list_lines: bool) -> list[str]:
    if list_lines:
        return ["--list-full", "-qq"]
    if full is not None:
        return ["--full", full]
    return [] if everything else ["--quick"]


def _workers(arguments: list[str]) -> list[str]:
    """Processes that share the tests; what follows on the command line has precedence.

    A file of tests is done before a second process has collected it.
    """
    if any(each.partition("::")[0].endswith(".py") for each in arguments):
        return []
    # `logical` is none with --pdb, where `auto` counts cores, two threads of one as one.
    return ["-n", "logical", "--maxprocesses", str(_MOST_WORKERS), "--dist", "worksteal"]
