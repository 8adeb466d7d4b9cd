# SPDX-License-Identifier: GPL-2.0-or-later
"""Arguments and options that the verbs of results have in common."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated

import typer

from softroce_lab.cli import completion
from softroce_lab.errors import UserError
from softroce_lab.inputs.yaml_source import Origin
from softroce_lab.results import recorded
from softroce_lab.results.recorded import Recorded, Run

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run directory, or its name below ./runs; latest: the newest.",
        autocompletion=completion.runs,
    ),
]
RunOrSweep = Annotated[
    str,
    typer.Argument(
        metavar="RUN|SWEEP",
        help="A run directory or a sweep's, or its name below ./runs or ./sweeps.",
        autocompletion=completion.runs,
    ),
]
RunName = Annotated[
    str | None,
    typer.Option("--run", metavar="NAME", help="Of this run: TRANSPORT/SEED, such as csa_ud/1."),
]

Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Execute the policies and programs that the directory brings, and read the files "
        "outside that it names.",
    ),
]

STEPS = "3, 1:3 of operation 1, or ring:1:3 of a job"


def origin(*, trusted: bool) -> Origin:
    """Of the experiment in the directory."""
    return Origin.TRUSTED_RUN if trusted else Origin.RUN


def opened(where: str) -> Recorded:
    """The run directory that the line names. UserError, also for a sweep's."""
    found = Recorded(recorded.find(where))
    need_run(found)
    return found


def need_run(found: Recorded) -> None:
    """UserError for a sweep's directory."""
    if found.is_sweep:
        name = shlex.quote(str(found.path))
        hint = (
            f"lab results show {name} has its table, lab results report {name} its figures; "
            "lab run --keep-runs keeps a directory of each run, in runs/ below it"
        )
        raise UserError(f"{found.path} is a sweep, not a run", hint=hint)


def runs_of(found: Recorded, name: str | None) -> Sequence[Run]:
    """The one of this name; without it that of each transport with the first seed. UserError."""
    if name is not None:
        return [found.run(name)]
    seed = found.runs[0]["seed"]
    return [run for run in found.runs if run["seed"] == seed]
