# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that several verbs take."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

from softroce_lab.errors import UserError


class XdpMode(enum.StrEnum):
    """How the XDP programs are attached."""

    AUTO = "auto"
    NATIVE = "native"
    GENERIC = "generic"


Xdp = Annotated[XdpMode, typer.Option(help="How to attach the XDP programs.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
LogTo = Annotated[
    Path | None,
    typer.Option("--event-log", metavar="FILE", help="Write what queue pairs do, as JSON lines."),
]
LabToo = Annotated[
    str | None, typer.Option("--lab", metavar="LAB", help="The same as the argument.")
]


def either(argument: str | None, option: str | None) -> str | None:
    """What was given as an argument or, as most verbs have it, with --lab. UserError if both."""
    if argument and option and argument != option:
        raise UserError(f"{argument}, or --lab {option}?", hint="name the lab once")
    return argument or option


def saying(quiet: bool) -> Callable[[str], None]:
    """Tells the user how it goes, unless --quiet asks for silence."""
    return (lambda _: None) if quiet else (lambda text: typer.echo(f"lab: {text}", err=True))


def warn_of_damage(lost: Iterable[object]) -> None:
    """Print to stderr what a lab has lost, a line each."""
    for each in lost:
        typer.echo(f"lab: {each}", err=True)
