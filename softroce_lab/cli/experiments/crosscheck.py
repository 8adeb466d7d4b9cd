# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab crosscheck`: one experiment on both clocks, and whether they agree."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from softroce_lab import units, writable
from softroce_lab.cli.experiments.experiment_options import (
    EXPERIMENT,
    Changes,
    RequireFaithful,
    RunsUnder,
    Seeds,
    Transports,
    overrides_of,
)
from softroce_lab.cli.experiments.run import RunScreen
from softroce_lab.cli.options import Json, Junit, Quiet, Xdp, XdpMode
from softroce_lab.crosscheck import agreement
from softroce_lab.crosscheck import comparison as crosscheck
from softroce_lab.crosscheck import junit as crosscheck_junit
from softroce_lab.crosscheck.comparison import QUANTITIES, Comparison, Outcome
from softroce_lab.errors import ExitCode
from softroce_lab.experiment import spec
from softroce_lab.experiment.spec import Experiment

app = typer.Typer(add_completion=False)


@app.command("crosscheck")
def command(
    experiment: Annotated[str, EXPERIMENT] = "crosscheck",
    seed: Seeds = None,
    transport: Transports = None,
    changes: Changes = None,
    output: RunsUnder = Path("runs"),
    junit: Junit = None,
    require_faithful: RequireFaithful = False,
    xdp: Xdp = XdpMode.AUTO,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment on both clocks and compare the results; needs root."""
    replaced = {"clock": "the run on both clocks"}
    replaced |= {"seeds": "--seed"} if seed else {}
    replaced |= {"transports": "--transport"} if transport else {}
    overrides = overrides_of(changes, replaced)
    overrides += [("seeds", list(seed))] if seed else []
    spec.load(experiment, overrides)  # what is wrong with them is theirs, not ours
    virtual, real = (
        spec.load(experiment, [*overrides, ("clock", clock)]) for clock in ("virtual", "real")
    )
    if transport:
        virtual, real = (spec.with_transports(each, transport) for each in (virtual, real))
    if junit is not None:
        writable.check(junit, "--junit FILE")
    with RunScreen(quiet=quiet) as screen:
        _warn_of_few_seeds(virtual, screen)
        outcome = crosscheck.run(virtual, real, screen, under=output, mode=xdp.value)
    if junit is not None:
        crosscheck_junit.write(junit, outcome)
    if as_json:
        print(json.dumps(outcome.document(), indent=1))
    else:
        _print(outcome)
    faithful = all(about.faithful == about.runs for about in outcome.about)
    if outcome.verdict != "same" or (require_faithful and not faithful):
        raise typer.Exit(ExitCode.FAILED)


def _warn_of_few_seeds(experiment: Experiment, screen: RunScreen) -> None:
    comparisons = len(experiment.transports) * len(QUANTITIES)
    needed = agreement.fewest_seeds(comparisons)
    if len(experiment.seeds) < needed:
        screen.say(
            f"{units.format_count(len(experiment.seeds), 'seed')}: of {comparisons} comparisons "
            f"none can be found to differ with fewer than {needed} (--set seeds={needed})"
        )


def _print(outcome: Outcome) -> None:
    table = Table(box=None, pad_edge=False)
    headings = ("transport", "quantity", "virtual", "real", "margin", "off by, in margins")
    for heading in (*headings, "p same", "p differs", "verdict"):
        left = heading in ("transport", "quantity", "verdict")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    before = None
    for each in outcome.comparisons:
        table.add_row(*_cells(each, named=each.transport != before))
        before = each.transport
    Console(width=max(130, Console().width if sys.stdout.isatty() else 160)).print(table)
    print(f"\nMedians of {units.format_count(len(outcome.experiment.seeds), 'seed')}.")
    for about in outcome.about:
        found = about.distance
        printed = f"distributions {found.largest:.2f} apart (p {found.p:.3f})"
        printed += {
            True: ", the same packets lost when sent first",
            False: ", not the same packets lost when sent first",
            None: "",
        }[about.same_first_losses]
        print(f"  {about.transport}: {printed}; {about.faithful} of {about.runs} faithful")
        for cause in about.causes:
            print(f"    {cause}")
    print(f"\nThe clocks: {outcome.verdict}.\n{outcome.directory}")


def _cells(each: Comparison, *, named: bool) -> tuple[str, ...]:
    found = each.agreement
    show = each.quantity.figure.unit.show
    return (
        each.transport if named else "",
        each.quantity.name,
        *(show(value) for value in (each.virtual, each.real, each.margin)),
        f"{found.median:+.2f} [{found.low:+.2f}, {found.high:+.2f}]",
        f"{found.p_same:.3f}",
        f"{found.p_differs:.3f}",
        found.verdict,
    )
