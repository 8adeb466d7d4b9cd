# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab inspect graph`: a topology as a picture, on the terminal or as SVG."""

from __future__ import annotations

import functools
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from softroce_lab.cli import completion
from softroce_lab.cli.options import (
    Json,
    LabOrFile,
    either,
    print_document,
    warn_of_damage,
)
from softroce_lab.errors import UserError
from softroce_lab.fabric.observe import describe, view
from softroce_lab.faults import lines
from softroce_lab.plan.plan import Plan
from softroce_lab.topology import drawing, marks, svg
from softroce_lab.topology.drawing import Line
from softroce_lab.topology.marks import Marks, rows

app = typer.Typer(add_completion=False)

_STYLES = {"": "", "node": "bold", "fault": "yellow", "down": "red"}


@app.command()
def graph(
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="[LAB|FILE]",
            help="A running lab, or a topology file.",
            autocompletion=completion.labs_and_topologies,
        ),
    ] = None,
    lab: LabOrFile = None,
    svg_file: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write SVG to FILE; -: standard output."
        ),
    ] = None,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Draw in ASCII only.")] = False,
    as_json: Json = False,
) -> None:
    """Draw a lab: tiers as rows, hosts at the bottom; mark links with faults."""
    seen = view.of(either(where, lab))
    now_ns = seen.moment_ns()
    found = marks.marks(seen.plan.faults, functools.partial(lines.texts, now_ns=now_ns), now_ns)
    if svg_file is not None:
        _write(svg_file, svg.render(seen.plan, found))
    elif as_json:
        print_document(**_document(seen, found))
    else:
        _print(seen.plan, found, plain=ascii_only or not _can_draw())
        for host in describe.kernel_hosts(seen.plan, seen.condition):
            print(describe.kernel_host_line(seen.plan.node(host["node"]).kind, host))
    warn_of_damage(seen.damage())


def _write(file: Path, text: str) -> None:
    if str(file) == "-":
        print(text, end="")
        return
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from error


def _document(seen: view.View, found: Marks) -> dict[str, Any]:
    return {
        "up": seen.is_up,
        "tiers": [[node.name for node in tier] for tier in rows(seen.plan)],
        "lab": describe.plan_document(seen.plan),
        "kernel_hosts": describe.kernel_hosts(seen.plan, seen.condition),
        "marks": [
            {
                "directed_link": number,
                "down": mark.down,
                "acts": mark.acts,
                "faults": list(mark.texts),
            }
            for number, mark in sorted(found.items())
        ],
    }


def _can_draw() -> bool:
    try:
        "┌┆".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _print(plan: Plan, found: Marks, *, plain: bool) -> None:
    columns = shutil.get_terminal_size((120, 24)).columns
    console = Console(width=max(columns, 20), highlight=False)
    try:
        picture = drawing.draw(plan, found, columns)
    except drawing.TooLargeError:
        for text in marks.summary(plan, found):
            print(text)
    else:
        for line in drawing.ascii_only(picture) if plain else picture:
            console.print(_styled(line), no_wrap=True, crop=False)
    for text, links in marks.legend(plan, found):
        print(f"{text}: {links}")


def _styled(line: Line) -> Text:
    return Text.assemble(*((text, _STYLES[style]) for text, style in line))
