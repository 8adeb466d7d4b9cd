# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that several verbs take."""

from __future__ import annotations

import enum
import json
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from softroce_lab import units
from softroce_lab.cli import completion
from softroce_lab.cli.completion import LAB_VARIABLE
from softroce_lab.errors import UserError


class XdpMode(enum.StrEnum):
    """How the XDP programs are attached."""

    AUTO = "auto"
    NATIVE = "native"
    GENERIC = "generic"


Xdp = Annotated[XdpMode, typer.Option(help="Attach mode of the XDP programs.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")]
LogTo = Annotated[
    Path | None,
    typer.Option(
        "--event-log",
        metavar="FILE",
        help="Write the events of queue pairs to FILE, as JSON lines.",
    ),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Concurrent runs; default: one per core.")
]
Duration = Annotated[
    str | None,
    typer.Option(
        "--duration", "-D", metavar="TIME", help="Stop after this time: 10 (seconds), 500ms, 5min."
    ),
]
Junit = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML, for CI.")
]
# How a lab is named, in every verb: with --lab or the variable LAB and, where the verb acts on a
# whole lab, as its argument. Without a name it is the only one that is up.
Lab = Annotated[
    str | None,
    typer.Option(
        "--lab",
        metavar="LAB",
        envvar=LAB_VARIABLE,
        help="The lab, if several are up.",
        autocompletion=completion.labs,
    ),
]
LabOrFile = Annotated[
    str | None,
    typer.Option(
        "--lab",
        metavar="LAB|FILE",
        envvar=LAB_VARIABLE,
        help="A running lab, or a topology file.",
        autocompletion=completion.labs_and_topologies,
    ),
]
LabArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[LAB]",
        help="The lab, if several are up.",
        autocompletion=completion.labs,
    ),
]


def either(argument: str | None, option: str | None) -> str | None:
    """The lab that the argument, --lab or LAB names. UserError for two names on the line."""
    if argument and option not in (None, argument, os.environ.get(LAB_VARIABLE)):
        raise UserError(f"two labs are named: {argument} and {option}", hint="name the lab once")
    return argument or option


def parse_duration_s(text: str) -> float:
    """The seconds of --duration: a number, a number of minutes, or a time of units. UserError."""
    number, minutes = text.removesuffix("min").strip(), text.endswith("min")
    try:
        seconds = float(number) * (60 if minutes else 1)
    except ValueError:
        try:
            seconds = units.parse_time_ns(text) / 1e9
        except UserError as error:
            raise UserError(f"--duration: {error.what}", hint="such as 10s or 5min") from None
    if not 0 < seconds < math.inf:
        raise UserError(f"--duration {text}: expected more than 0", hint="such as 10s or 5min")
    return seconds


SCHEMA_VERSION = 1
"""Of what `--json` prints."""


def print_json(document: object) -> None:
    print(json.dumps(document, indent=1))


def print_document(**facts: Any) -> None:
    """Print a JSON document that begins with the version of its schema."""
    print_json({"schema_version": SCHEMA_VERSION, **facts})


def say(text: object) -> None:
    """Print a line to stderr."""
    typer.echo(f"lab: {text}", err=True)


def saying(quiet: bool) -> Callable[[str], None]:
    """Print progress to stderr, except with --quiet."""
    return (lambda _: None) if quiet else say


def warn_of_damage(lost: Iterable[object]) -> None:
    """Print to stderr what a lab has lost, a line each."""
    for each in lost:
        say(each)
