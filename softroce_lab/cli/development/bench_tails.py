# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench tails`: p99 of csa_ud beside ud_rto's on the real clock."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from softroce_lab.bench import tails as bench_tails
from softroce_lab.cli.options import Json, Quiet, saying
from softroce_lab.errors import ExitCode


def tails(
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each case.")] = bench_tails.SEEDS,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure csa_ud's p99 against ud_rto's under loss: 1 % of packets, and every tail once."""
    outcome = bench_tails.run(seeds, saying(quiet))
    if as_json:
        print(json.dumps(outcome.document(), indent=1))
    else:
        print("\n".join(outcome.lines()))
    if not outcome.passed:
        raise typer.Exit(ExitCode.FAILED)
