# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results rerun`: an experiment or a sweep again, from its directory; is it the same?"""

from __future__ import annotations

from pathlib import Path

import typer

from softroce_lab.cli.experiment_options import RunsUnder
from softroce_lab.cli.options import Json, Quiet, print_json, saying
from softroce_lab.cli.results.options import RunOrSweep, Trust, origin
from softroce_lab.cli.running.experiment import RunScreen
from softroce_lab.cli.running.sweep import SweepScreen
from softroce_lab.errors import ExitCode
from softroce_lab.results import recorded
from softroce_lab.results import rerun as repeating
from softroce_lab.results.recorded import Recorded

app = typer.Typer(add_completion=False)


@app.command()
def rerun(
    run: RunOrSweep = "latest",
    output: RunsUnder = Path("runs"),
    trust: Trust = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment or a sweep again from its directory: exit code 1 if it differs.

    Virtual clock: byte for byte. Real clock: fates of packets, and figures within their intervals.
    A `file` workload saves nothing.
    """
    found = Recorded(recorded.find(run))
    whose = origin(trusted=trust)
    if found.is_sweep:
        with SweepScreen(quiet=quiet) as screen:
            comparison = repeating.sweep_again(found, screen, under=output, origin=whose)
    elif repeating.is_failover(found):
        comparison = repeating.failover_again(found, saying(quiet), under=output, origin=whose)
    else:
        with RunScreen(quiet=quiet) as screen:
            comparison = repeating.again(found, screen, under=output, origin=whose)
    if as_json:
        print_json(comparison.document())
    else:
        for each in comparison.differences:
            print(each)
        if comparison.codes[0] != comparison.codes[1]:
            print(f"the code has changed: {comparison.codes[0]}, now {comparison.codes[1]}")
        verdict = "same" if comparison.same else "DIFFERENT"
        if comparison.undecided:
            verdict += f", {comparison.undecided} of {len(comparison.differences)} undecided"
        print(f"{verdict}: {comparison.second}")
    if not comparison.same:
        raise typer.Exit(ExitCode.FAILED)
