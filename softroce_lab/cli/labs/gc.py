# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab gc`: remove what crashes left."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from softroce_lab.cli.options import Json
from softroce_lab.fabric import gc as collector
from softroce_lab.fabric import runtime
from softroce_lab.fabric.observe import describe

app = typer.Typer(add_completion=False)


@app.command()
def gc(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the remains; remove nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove the remains of labs whose `lab up`, `lab down` or owner died; nothing else."""
    done = collector.Collection(collector.remains()) if dry_run else collector.collect(_say)
    if as_json:
        remains = [{"name": each.name, "why": each.remains} for each in done.removed]
        document = {"schema_version": describe.SCHEMA_VERSION, "removed": not dry_run}
        print(json.dumps(document | {"remains": remains}, indent=1))
    else:
        for each in done.removed:
            print(f"{each.name} {'to be removed' if dry_run else 'removed'}: {each.remains}")
    runtime.raise_all(done.failures)


def _say(text: str) -> None:
    typer.echo(f"lab: {text}", err=True)
