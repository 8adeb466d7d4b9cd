# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench recovery`: loss recovery of all transports, judged cell by cell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from softroce_lab.bench.recovery import run as bench_recovery
from softroce_lab.cli.modes import ModalCommand, Mode, flag
from softroce_lab.cli.options import Jobs, Json, Quiet
from softroce_lab.cli.running.sweep import SweepScreen
from softroce_lab.errors import ExitCode


class Command(ModalCommand):
    """A command that rejects options without effect in the chosen mode."""

    modes = (Mode("--short", flag("short"), ("tuning",)),)


def recovery(
    short: Annotated[
        bool, typer.Option("--short", help="A few cells on 16 hosts, with two seeds.")
    ] = False,
    tuning: Annotated[
        bool,
        typer.Option("--tuning", help="All cells on 16 hosts, with the seeds for tuning."),
    ] = False,
    cells: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="These cells, such as 'ring*/random-1%'; repeatable."),
    ] = None,
    resume: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Keep rows here; those that are there are used."),
    ] = Path("bench"),
    jobs: Jobs = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare csa_ud with all baselines under loss, on the virtual clock, and judge each cell.

    Repeat the command to resume; DIR is the same then.
    """
    sweep = bench_recovery.TUNING if tuning else bench_recovery.FULL
    options = bench_recovery.Options(sweep, short, tuple(cells or ()), resume, jobs)
    with SweepScreen(quiet=quiet) as screen:
        outcome = bench_recovery.run(options, screen)
    if as_json:
        print(json.dumps(outcome.document(), indent=1))
    else:
        print("\n".join(bench_recovery.lines(outcome)))
    if not outcome.passed:
        raise typer.Exit(ExitCode.FAILED)
