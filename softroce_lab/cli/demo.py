# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab demo`: send a real file through a lossy fabric, and prove that it arrived."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from softroce_lab import units
from softroce_lab.cli.options import Json, Quiet, Xdp, XdpMode
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.experiment import demo as experiment
from softroce_lab.experiment.transfer import DEPTH

app = typer.Typer(add_completion=False)


class IpVersion(enum.StrEnum):
    """What RoCEv2 lies upon."""

    V4 = "4"
    V6 = "6"


class Screen:
    """Progress on standard error: bars on a terminal, lines elsewhere, nothing if quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description:>8}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=quiet or not self._console.is_terminal,
        )

    def __enter__(self) -> Screen:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """A step begins."""
        if not self._quiet:
            self._console.print(f"lab: {text}", highlight=False, markup=False)

    def transfer(self, transport: str, total_bytes: int) -> Callable[[int], None]:
        """A transfer begins."""
        if not self._console.is_terminal:
            self.say(f"{transport}: {units.format_bytes(total_bytes)}")
        task = self._progress.add_task(transport, total=max(total_bytes, 1))
        return lambda received: self._progress.update(task, completed=received)


@app.command()
def demo(
    file: Annotated[Path | None, typer.Option(help="Send this file, not libLLVM.")] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of the losses.")] = None,
    transport: Annotated[
        list[str] | None, typer.Option(help="A transport to run; may be repeated.")
    ] = None,
    topology: Annotated[str, typer.Option(help="A topology file, or a ready one.")] = "leaf-spine",
    faults: Annotated[
        list[str] | None,
        typer.Option(
            help="A fault profile, or a ready one, beside the topology's own faults; may be "
            "repeated; none: no profile. By default spine-loss-1pct, on leaf-spine alone."
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="The sending host; by default the first.")
    ] = None,
    destination: Annotated[
        str | None,
        typer.Option("--to", help="The receiving host; by default one farthest from it."),
    ] = None,
    message: Annotated[str, typer.Option(help="Size of a message.")] = "1MiB",
    depth: Annotated[int, typer.Option(min=1, max=256, help="Messages posted at once.")] = DEPTH,
    capture: Annotated[
        str | None,
        typer.Option(
            help="Capture this direction of a link (near->far); none: capture nothing. By default "
            "leaf1->spine1, on leaf-spine alone."
        ),
    ] = None,
    ip: Annotated[IpVersion, typer.Option(help="Send RoCEv2 over this IP version.")] = IpVersion.V4,
    save: Annotated[Path | None, typer.Option(help="Write the received file here.")] = None,
    name: Annotated[str, typer.Option(help="Call the lab and the run this.")] = "demo",
    xdp: Xdp = XdpMode.AUTO,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Send a file over CSA-UD and ud_rto through a leaf-spine fabric, 1 % lost at its spines."""
    options = experiment.Options(
        file=file,
        transports=tuple(transport or experiment.TRANSPORTS),
        topology=topology,
        faults=_profiles(faults, topology),
        source=source,
        destination=destination,
        name=name,
        seed=seed,
        mode=xdp.value,
        capture=_chosen(capture, "leaf1->spine1", topology),
        message_bytes=_message_bytes(message),
        depth=depth,
        ip_version=int(ip),
        save=save,
    )
    with Screen(quiet=quiet) as screen:
        outcome = experiment.run(options, screen)
    if as_json:
        print(json.dumps(outcome.document(), indent=1))
    else:
        _print(outcome)
    if not outcome.verified:
        raise typer.Exit(ExitCode.FAILED)


def _chosen(option: str | None, default: str, topology: str) -> str | None:
    """What a user chose, or the default, which fits the default topology alone; None: nothing."""
    if option is None:
        return default if topology == "leaf-spine" else None
    return None if option == "none" else option


def _profiles(options: list[str] | None, topology: str) -> tuple[str, ...]:
    if options:
        return tuple(name for name in options if name != "none")
    default = _chosen(None, "spine-loss-1pct", topology)
    return () if default is None else (default,)


def _message_bytes(text: str) -> int:
    size = units.parse_bytes(text)
    if not 0 < size <= 1 << 28:
        raise UserError(f"a message of {text}", hint="between 1B and 256MiB")
    return size


def _print(outcome: experiment.Outcome) -> None:
    rows = [run.summary() for run in outcome.runs]
    table = Table(box=None, pad_edge=False)
    for heading in ("transport", *(row["transport"] for row in rows)):
        table.add_column(heading, justify="left" if heading == "transport" else "right")
    for label, show in _LINES:
        table.add_row(label, *(show(row) for row in rows))
    Console(width=max(100, Console().width if sys.stdout.isatty() else 100)).print(table)
    for row in rows:
        for reason in row["fidelity"]["reasons"]:
            print(f"  {row['transport']} not faithful: {reason}")
    if len(rows) > 1 and outcome.lost_any_first:
        same = {True: "the same", False: "NOT the same", None: "perhaps not the same"}
        print(f"\nFirst attempts lost: {same[outcome.same_fates]} packets for every transport.")
    if outcome.idle_rules:
        print(f"\nRules that did nothing: {', '.join(outcome.idle_rules)}")
    print(f"\n{outcome.directory}")


def _duration(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: units.format_duration(row[name])


def _count(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: f"{row[name]:,}"


_LINES: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
    ("goodput", lambda row: units.format_rate(row["goodput_bps"])),
    ("p50 message completion", _duration("fct_p50_ns")),
    ("p99 message completion", _duration("fct_p99_ns")),
    ("data packets sent", _count("packets_sent")),
    ("injected drops", _count("injected_drops")),
    ("emulator drops", _count("emulator_drops")),
    ("resent", _count("resent")),
    ("spurious resends", _count("spurious_resent")),
    ("verified (SHA-256)", lambda row: "yes" if row["verified"] else "NO"),
    ("fidelity", lambda row: row["fidelity"]["verdict"]),
]
