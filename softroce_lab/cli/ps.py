# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab ps`: which labs there are, and how they are."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from softroce_lab import units
from softroce_lab.cli import completion
from softroce_lab.cli.options import Json, Lab, either
from softroce_lab.errors import ExitCode
from softroce_lab.fabric import runtime
from softroce_lab.fabric.observe import describe

app = typer.Typer(add_completion=False)


@app.command()
def ps(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[LAB]",
            help="Show only this lab, with its nodes.",
            autocompletion=completion.labs,
        ),
    ] = None,
    lab: Lab = None,
    as_json: Json = False,
) -> None:
    """Show all labs, or one of them in detail; exit with 1 if one is damaged."""
    name = either(name, lab)
    if name is not None:
        runtime.existing(name)
    found = [each for each in runtime.labs() if name in (None, each.name)]
    documents = [describe.lab_document(condition) for condition in found]
    if as_json:
        print(json.dumps({"schema_version": describe.SCHEMA_VERSION, "labs": documents}, indent=1))
    elif not documents:
        typer.echo("lab: no lab is up", err=True)
    else:
        for document in documents:
            _print(document)
            if name is not None:
                _print_details(document)
    if any(document["damage"] for document in documents):
        raise typer.Exit(ExitCode.FAILED)


def _print(document: dict[str, Any]) -> None:
    plan = document["plan"] or {"nodes": [], "links": []}
    things = ((len(plan["nodes"]), "node"), (len(plan["links"]), "link"))
    counts = ", ".join(units.format_count(number, thing) for number, thing in things)
    notes = [
        document["problem"],
        document["remains"] and f"{document['remains']}: lab doctor --clean",
    ]
    notes += [document["owner_pid"] and f"owned by process {document['owner_pid']}"]
    notes += ["in use" if document["busy"] else None]
    state = "damaged" if document["damage"] else document["state"]
    print("  ".join([f"{document['name']:20} {state:10} {counts}", *filter(None, notes)]))
    for lost in document["damage"]:
        print(f"  {lost['what']}: {lost['hint']}")


def _print_details(document: dict[str, Any]) -> None:
    plan = document["plan"] or {"nodes": [], "links": []}
    for node in plan["nodes"]:
        print(
            f"  {node['name']:15} {node['kind']:6} {node['address'] or '-':15} "
            f"{node['namespace']:20} {' '.join(node['ports'])}"
        )
    for near, far in plan["links"]:
        print(f"  {near} - {far}")
    for capability in document["lacks"]:
        print(f"  without {capability}")
    for process in document["processes"]:
        print(
            f"  {process['role']}: process {process['pid']}"
            f"{'' if process['alive'] else ', which has ended'}"
        )
