# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab wireshark`: the dissector of the lab's own headers, in Wireshark's plugin folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from softroce_lab.cli.options import Json
from softroce_lab.errors import UserError

app = typer.Typer(add_completion=False)

_PRINTED = {
    "absent": "not installed: `lab wireshark --install` writes {path}",
    "current": "installed: {path}",
    "outdated": "of another version: {path}; `lab wireshark --install` renews it",
    "foreign": "a file that is not ours is in the way: {path}",
}


@app.command()
def wireshark(
    install: Annotated[
        bool, typer.Option("--install", help="Install or update the dissector.")
    ] = False,
    uninstall: Annotated[bool, typer.Option("--uninstall", help="Remove the dissector.")] = False,
    to_stdout: Annotated[bool, typer.Option("--print", help="Print the dissector.")] = False,
    everyone: Annotated[
        bool, typer.Option("--global", help="Use the folder of all users.")
    ] = False,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Use this folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Install the Wireshark dissector of the lab's headers; without options, show its status."""
    from softroce_lab.dissect import wireshark as plugin  # takes as long to load as scapy

    _at_most_one({"--install": install, "--uninstall": uninstall, "--print": to_stdout})
    _at_most_one({"--global": everyone, "--dir": directory is not None})
    if to_stdout:
        print(plugin.program(), end="")
        return
    if directory is not None:
        place = plugin.named(directory)
    else:
        place = plugin.everyones() if everyone else plugin.personal()
    if install:
        plugin.install(place)
    elif uninstall:
        plugin.uninstall(place)
    found = plugin.inspect(place)
    if as_json:
        print(json.dumps({"path": str(found.path), "state": found.state}, indent=1))
    else:
        print(_PRINTED[found.state].format(path=found.path))


def _at_most_one(given: dict[str, bool]) -> None:
    named = [option for option, wanted in given.items() if wanted]
    if len(named) > 1:
        raise UserError(f"{' or '.join(named)}?", hint="name one of them")
