# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab doctor`: what this machine can do for a lab; clean-up; Wireshark's dissector."""

from __future__ import annotations

import dataclasses
import enum
from pathlib import Path
from typing import Annotated

import typer

from softroce_lab.cli.modes import ModalCommand, Mode, flag
from softroce_lab.cli.options import Json, print_document, print_json, say
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.fabric import doctor as examiner

app = typer.Typer(add_completion=False)


class Plugin(enum.StrEnum):
    """What to do with the dissector."""

    STATUS = "status"
    INSTALL = "install"
    REMOVE = "remove"
    PRINT = "print"


_PRINTED = {
    "absent": "not installed: `lab doctor --wireshark install` writes {path}",
    "current": "installed: {path}",
    "outdated": "of another version: {path}; `lab doctor --wireshark install` renews it",
    "foreign": "a file that is not ours is in the way: {path}",
}


class _Command(ModalCommand):
    """A command that rejects options without effect in the chosen mode."""

    modes = (
        Mode("--clean", flag("clean"), ("wireshark",)),
        Mode("without --clean", lambda params: not params["clean"], ("dry_run",)),
        Mode(
            "without --wireshark", lambda params: not params["wireshark"], ("everyone", "directory")
        ),
        Mode(
            "--wireshark print",
            lambda params: params["wireshark"] == Plugin.PRINT,
            ("everyone", "directory", "as_json"),
        ),
    )


@app.command(cls=_Command)
def doctor(
    clean: Annotated[
        bool,
        typer.Option(
            "--clean",
            help="Remove what labs left whose `lab` process died, and nothing else; labs that are "
            "up stay.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --clean: list the remains; remove nothing.")
    ] = False,
    wireshark: Annotated[
        Plugin | None,
        typer.Option(
            help="Show, install, remove or print the Wireshark plugin for the lab's own header."
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="With --wireshark: the dissector's folder; default: the user's plugin folder.",
        ),
    ] = None,
    everyone: Annotated[
        bool, typer.Option("--global", help="With --wireshark: use the folder of all users.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check what labs need of this machine: kernel, tools, rights. Exit with 3 if it is missing."""
    if clean:
        _clean(dry_run=dry_run, as_json=as_json)
    elif wireshark is not None:
        _wireshark(wireshark, directory, everyone=everyone, as_json=as_json)
    else:
        _examine(as_json=as_json)


def _examine(*, as_json: bool) -> None:
    findings = examiner.examine()
    healthy = all(finding.found for finding in findings if finding.required)
    virtual = any(each.capability == examiner.NATIVE_MODULE and each.found for each in findings)
    if as_json:
        listed = [dataclasses.asdict(finding) for finding in findings]
        print_document(healthy=healthy, virtual_clock=virtual, capabilities=listed)
    else:
        for finding in findings:
            _print(finding)
        if virtual and not healthy:
            print("No lab comes up here, but the virtual clock works: lab run FILE --clock virtual")
    if not healthy:
        raise typer.Exit(ExitCode.LACKING)


def _print(finding: examiner.Finding) -> None:
    missing = "MISSING" if finding.required else "absent"
    state = "ok" if finding.found else missing if finding.tried else "?"
    print(f"{state:8} {finding.capability:24} {finding.detail}")
    if finding.tried and not finding.found:
        output = {"for": finding.why, "without": finding.without, "get": finding.how}
        for word, text in output.items():
            if text:
                print(f"{'':8}   {word}: {text}")


def _clean(*, dry_run: bool, as_json: bool) -> None:
    # Imported late: what a machine lacks must not keep `lab doctor` from saying so.
    from softroce_lab.fabric import runtime

    done = runtime.Collection(runtime.remains()) if dry_run else runtime.collect(say)
    if as_json:
        remains = [{"name": each.name, "why": each.remains} for each in done.removed]
        print_document(removed=not dry_run, remains=remains)
    else:
        for each in done.removed:
            print(f"{each.name} {'to be removed' if dry_run else 'removed'}: {each.remains}")
    runtime.raise_all(done.failures)


def _wireshark(wanted: Plugin, directory: Path | None, *, everyone: bool, as_json: bool) -> None:
    from softroce_lab.dissect import wireshark as plugin  # takes as long to load as scapy

    if everyone and directory is not None:
        raise UserError("--global and --output name two folders", hint="name one of them")
    if wanted is Plugin.PRINT:
        print(plugin.program(), end="")
        return
    if directory is not None:
        place = plugin.named(directory)
    else:
        place = plugin.everyones() if everyone else plugin.personal()
    if wanted is Plugin.INSTALL:
        plugin.install(place)
    elif wanted is Plugin.REMOVE:
        plugin.uninstall(place)
    found = plugin.inspect(place)
    if as_json:
        print_json({"path": str(found.path), "state": found.state})
    else:
        print(_PRINTED[found.state].format(path=found.path))
