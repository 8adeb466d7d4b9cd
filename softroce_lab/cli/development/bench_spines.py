# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench spines`: how soon a transport leaves a spine that loses packets."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from softroce_lab.bench import spines as bench_spines
from softroce_lab.cli.options import Json, Quiet, saying
from softroce_lab.errors import ExitCode
from softroce_lab.recovery import registry


def spines(
    transport: Annotated[str, typer.Option(help="The transport.")] = "csa_ud",
    full: Annotated[
        bool, typer.Option("--full", help="100 seeds of each case, instead of 5.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure how soon packets leave a dead or grey spine, on the virtual clock."""
    registry.find(transport)
    seeds = bench_spines.FULL_SEEDS if full else bench_spines.SEEDS
    outcomes = bench_spines.run(transport, seeds, saying(quiet))
    back = bench_spines.run_back(transport, seeds, saying(quiet))
    if as_json:
        print(json.dumps(bench_spines.document(outcomes, back), indent=1))
    else:
        print("\n".join(each.text for each in (*outcomes, back)))
    if not all(each.passed for each in (*outcomes, back)):
        raise typer.Exit(ExitCode.FAILED)
