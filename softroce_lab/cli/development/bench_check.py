# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench check`: what it takes to read and to check a long capture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from softroce_lab import units
from softroce_lab.bench import check as bench_check
from softroce_lab.cli.modes import ModalCommand, Mode, flag
from softroce_lab.cli.options import Json, Quiet, saying


class Command(ModalCommand):
    """A command that rejects options without effect in the chosen mode."""

    modes = (Mode("captures of your own", flag("files"), ("packets",)),)


def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Captures; default: generated ones."),
    ] = None,
    packets: Annotated[
        int, typer.Option(min=1, help="Packets in each generated capture.")
    ] = bench_check.PACKETS,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure time and memory of reading and checking captures of RC and of csa_ud."""
    say = saying(quiet)
    measured = bench_check.run(packets, files or (), say)
    if as_json:
        print(json.dumps(bench_check.document(list(measured)), indent=1))
        return
    for each in measured:
        size = units.format_bytes(each.file_bytes)
        found = ", a rule fails" if each.failed else ""
        print(f"{each.name}: {each.packets:,} packets, {size}{found}")
        for name, cost in (("read", each.read), ("check", each.check)):
            peak = units.format_bytes(cost.peak_bytes)
            print(f"  {name:6}{cost.seconds:>7.1f} s, {cost.cpu_seconds:.1f} s of CPU, {peak}")
