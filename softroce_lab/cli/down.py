# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab down`: take labs away."""

from __future__ import annotations

from typing import Annotated

import typer

from softroce_lab.errors import UserError
from softroce_lab.fabric import runtime

app = typer.Typer(add_completion=False)


@app.command()
def down(
    name: Annotated[
        str | None, typer.Argument(help="The lab; the only one may go unnamed.")
    ] = None,
    all_labs: Annotated[bool, typer.Option("--all", help="Every lab.")] = False,
) -> None:
    """Take down the lab NAME, the only lab, or all of them."""
    known = [condition.name for condition in runtime.labs()]
    if all_labs and name is not None:
        raise UserError("a name and --all", hint="give one of them")
    if not all_labs and name is None and len(known) != 1:
        raise UserError(
            f"several labs: {', '.join(known)}" if known else "there is no lab",
            hint="lab down NAME, or lab down --all" if known else None,
        )
    for each in known if name is None else [name]:
        runtime.down(each, _say)
        print(f"{each} down")


def _say(text: str) -> None:
    typer.echo(f"lab: {text}", err=True)
