# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab exec`: run a command at a node."""

from __future__ import annotations

from typing import Annotated

import typer

from softroce_lab.fabric import execute

app = typer.Typer(add_completion=False)


@app.command()
def exec(  # noqa: A001 - the verb's name
    node: Annotated[str, typer.Argument(help="A host or switch.")],
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="Run this there.")],
    lab: Annotated[str | None, typer.Option(help="The lab, when several are up.")] = None,
) -> None:
    """Run COMMAND in the network namespace of NODE; its exit status is COMMAND's."""
    execute.execute(lab, node, command)
