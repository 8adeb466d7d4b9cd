# SPDX-License-Identifier: GPL-2.0-or-later
"""`--capture [LINK]` of the verbs that run something."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from softroce_lab.cli.modes import ModalCommand, Mode
from softroce_lab.errors import UserError
from softroce_lab.experiment.capturing import ENDS, FILE, Wanted
from softroce_lab.telemetry.capture_figures import check_snap

Captured = Annotated[
    list[str] | None,
    typer.Option(
        "--capture",
        metavar="[LINK]",
        help="Capture packets of all links of the hosts and of links with rules that lose or "
        "change packets, or of LINK: a->b, a<->b, a node; globs; may be repeated.",
    ),
]
Snap = Annotated[
    int, typer.Option(min=0, metavar="BYTES", help="Bytes captured of each packet; 0: all.")
]
CaptureFile = Annotated[
    Path | None,
    typer.Option(
        "--capture-file", metavar="FILE", help=f"File of the captured packets; default: {FILE}."
    ),
]


class WithCapture(ModalCommand):
    """A command whose `--capture` needs no value where another option, or nothing, follows."""

    modes = (Mode("nothing captured", lambda params: not params["capture"], ("snap",)),)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """With the value that a bare `--capture` stands for."""
        following = [*args, "--"][1:]
        full = [
            f"{word}={ENDS}" if word == "--capture" and after.startswith("-") else word
            for word, after in zip(args, following, strict=True)
        ]
        return super().parse_args(ctx, full)


def wanted(links: list[str] | None, snap: int, file: Path | None) -> Wanted:
    """The captures that the options request. UserError."""
    if file is not None and not links:
        raise UserError(f"nothing is captured into {file}", hint="--capture, or --capture LINK")
    return Wanted(tuple(links or ()), check_snap(snap), file or Path(FILE))
