# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench spines`: how soon a transport leaves a spine that loses packets."""

from __future__ import annotations

import enum
import json
from typing import Annotated

import typer

from softroce_lab.bench import spines as bench_spines
from softroce_lab.cli.modes import ModalCommand, Mode, flag
from softroce_lab.cli.options import Json, Quiet, saying
from softroce_lab.errors import ExitCode
from softroce_lab.recovery import registry


class Clocks(enum.StrEnum):
    """What times pass on."""

    VIRTUAL = "virtual"
    REAL = "real"


class Command(ModalCommand):
    """A command that rejects options without effect in the chosen mode."""

    modes = (Mode("--full", flag("full"), ("seeds",)),)


def spines(
    transport: Annotated[str, typer.Option(help="The transport.")] = "csa_ud",
    clock: Annotated[
        Clocks, typer.Option(help="The virtual clock, or the real one as root.")
    ] = Clocks.VIRTUAL,
    seeds: Annotated[
        int, typer.Option(min=1, help="Seeds of each case, from 1 on.")
    ] = bench_spines.SEEDS,
    full: Annotated[bool, typer.Option("--full", help="100 seeds of each case.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure how soon packets leave a dead or grey spine."""
    registry.find(transport)
    count = bench_spines.FULL_SEEDS if full else seeds
    on = bench_spines.CLOCKS[clock.value]
    outcomes = bench_spines.run(transport, count, on, saying(quiet))
    back = bench_spines.run_back(transport, count, on, saying(quiet))
    if as_json:
        print(json.dumps(bench_spines.document(outcomes, back), indent=1))
    else:
        print("\n".join((*(each.text for each in (*outcomes, back)), bench_spines.LIMITS)))
    if not all(each.passed for each in (*outcomes, back)):
        raise typer.Exit(ExitCode.FAILED)
