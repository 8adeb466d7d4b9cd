# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab down`: take labs away."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from softroce_lab.cli.completion import LAB_VARIABLE
from softroce_lab.cli.options import Lab, LabArgument, either
from softroce_lab.errors import UserError
from softroce_lab.fabric import runtime

app = typer.Typer(add_completion=False)


@app.command()
def down(
    name: LabArgument = None,
    lab: Lab = None,
    all_labs: Annotated[bool, typer.Option("--all", help="Take down every lab.")] = False,
) -> None:
    """Take down the lab LAB, the only lab, or all of them."""
    name = either(name, lab)
    if all_labs and name not in (None, os.environ.get(LAB_VARIABLE)):
        raise UserError("a name and --all", hint="give one of them")
    if all_labs:
        for each in runtime.down_all(_say):
            print(f"{each} down")
        return
    name = name or runtime.only()
    runtime.down(name, _say)
    print(f"{name} down")


def _say(text: str) -> None:
    typer.echo(f"lab: {text}", err=True)
