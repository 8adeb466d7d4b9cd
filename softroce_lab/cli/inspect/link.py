# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab inspect link`: links in every detail, a direction each."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from softroce_lab import units
from softroce_lab.cli import completion
from softroce_lab.cli.inspect.node import show_counters
from softroce_lab.cli.options import Json, LabOrFile, warn_of_damage
from softroce_lab.fabric.observe import describe, inspection, view

app = typer.Typer(add_completion=False)


@app.command()
def link(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="LINK",
            help="'a->b', 'a<->b', a node or a node:port; globs.",
            autocompletion=completion.links,
        ),
    ],
    lab: LabOrFile = None,
    as_json: Json = False,
) -> None:
    """Show links: their ends, faults, queues and counters."""
    seen = view.of(lab)
    document = inspection.link_document(seen, pattern)
    if as_json:
        print(json.dumps({"schema_version": describe.SCHEMA_VERSION, **document}, indent=1))
    else:
        _print_timeline(document)
        for half in document["links"]:
            _print_half(half)
    warn_of_damage(seen.damage())


def _print_timeline(document: dict[str, Any]) -> None:
    """What moment it is, if a fault that is shown hangs on it."""
    moments = [fault["moment"] for half in document["links"] for fault in half["faults"]]
    if any(moments):
        print(f"timeline at {units.format_duration(document['timeline_ns'])}")


def _print_half(half: dict[str, Any]) -> None:
    near, far = half["from"], half["to"]
    print(f"{near['port']} -> {far['port']}  (directed link {half['directed_link']})")
    for end in (near, far):
        print(f"  {end['port']:24} {end['mac']}  {end['address'] or ''}".rstrip())
    for fault in half["faults"]:
        what = f"  fault {fault['text']}  (rule {fault['rule']}, key {fault['key']})"
        print("  ".join(filter(None, (what, fault["moment"], _hits(fault)))))
    for line in half["tc"]:
        print(f"    {line}")
    show_counters(half["counters"])
    if half["queued_bytes"]:
        print(f"    queue {units.format_bytes(half['queued_bytes'])}")


def _hits(fault: dict[str, Any]) -> str:
    if fault["hits"] is None:
        return ""
    if fault["seen"] == 0:
        return "no packets yet"
    of = "" if fault["seen"] is None else f" of {fault['seen']:,}"
    return f"hit {fault['hits']:,}{of}"
