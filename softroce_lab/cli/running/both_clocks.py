# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab run --clock both`: one experiment on both clocks, and whether they agree."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console

from softroce_lab import units, writable
from softroce_lab.cli import tables
from softroce_lab.cli.options import print_json
from softroce_lab.cli.running import experiment
from softroce_lab.cli.running.experiment import Running, RunScreen
from softroce_lab.errors import ExitCode
from softroce_lab.experiment import spec
from softroce_lab.experiment.capturing import NOTHING
from softroce_lab.experiment.crosscheck import agreement
from softroce_lab.experiment.crosscheck import comparison as crosscheck
from softroce_lab.experiment.crosscheck.comparison import QUANTITIES, Comparison, Outcome
from softroce_lab.experiment.spec import Experiment, Overrides


def run(path: Path, overrides: Overrides, transports: Sequence[str] | None, how: Running) -> None:
    """Run an experiment on both clocks, and compare them. Exits with 1 if they differ."""
    if how.junit is not None:
        writable.check(how.junit, "--junit FILE")
    spec.load(path, overrides)  # reports mistakes in the options as theirs, not as the clock's
    virtual, real = (
        spec.load(path, [*overrides, ("clock", clock)]) for clock in ("virtual", "real")
    )
    if transports:
        virtual, real = (spec.with_transports(each, transports) for each in (virtual, real))
    if how.dry_run:
        experiment.run(virtual, NOTHING, how)
        return
    with RunScreen(quiet=how.quiet) as screen:
        _warn_of_few_seeds(virtual, screen)
        outcome = crosscheck.run(virtual, real, screen, under=how.under, mode=how.xdp)
    if how.junit is not None:
        crosscheck.write_junit(how.junit, outcome)
    if how.as_json:
        print_json(outcome.document())
    else:
        _print(outcome)
    faithful = all(about.faithful == about.runs for about in outcome.about)
    if outcome.verdict != "same" or (how.require_faithful and not faithful):
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
    headings = ("transport<", "quantity<", "virtual", "real", "margin", "off by, in margins")
    table = tables.table(*headings, "p same", "p differs", "verdict<", no_wrap=True)
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
