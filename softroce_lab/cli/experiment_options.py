# SPDX-License-Identifier: GPL-2.0-or-later
"""What the verbs that run something have in common: options, and the list of ready files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from softroce_lab.cli import completion
from softroce_lab.cli.modes import ModalCommand, Mode
from softroce_lab.errors import UserError
from softroce_lab.experiment import spec
from softroce_lab.experiment.capturing import ENDS, FILE, Wanted
from softroce_lab.inputs.yaml_source import Data
from softroce_lab.telemetry.capture_figures import check_snap

Seeds = Annotated[
    list[int] | None, typer.Option("--seed", min=0, help="Run only this seed; may be repeated.")
]


def _transport(what: str) -> Any:
    return typer.Option(
        "--transport",
        metavar="[LABEL=]NAME|FILE:CLASS",
        help=f"Run {what} a built-in one, or a class of yours in a Python file; may be repeated.",
        autocompletion=completion.transports,
    )


Transports = Annotated[list[str] | None, _transport("only this transport: one of the file's,")]
KnownTransports = Annotated[list[str] | None, _transport("only this transport:")]
"""Of verbs that read no file with transports."""
ThisTransport = Annotated[list[str] | None, _transport("this transport:")]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a value of the file, such as workload.bytes=2MiB; may be repeated.",
    ),
]
RunsUnder = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Parent of the run directories.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check the file, print what would run, and exit.")
]
RequireFaithful = Annotated[
    bool,
    typer.Option(
        "--require-faithful",
        help="Exit with 1 if this machine was too slow for the rates and delays of the fabric "
        "(fidelity: not faithful), even if all passed.",
    ),
]


def overrides_of(
    changes: Iterable[str] | None, replaced: Mapping[str, str]
) -> list[tuple[str, Data]]:
    """The keys and values of --set. UserError for one whose value something else replaces.

    `replaced` has what does, by key. A later --set replaces one of the same key, or of a key below.
    """
    overrides = [spec.parse_override(text) for text in changes or ()]
    for n, (key, _) in enumerate(overrides):
        by = replaced.get(key.partition(".")[0])
        for later, _ in overrides[n + 1 :]:
            if f"{key}.".startswith(f"{later}."):
                by = f"--set {later} behind it"
        if by is not None:
            raise UserError(f"--set {key}: no effect with {by}", hint="leave it out")
    return overrides


# --- --capture [LINK] -----------------------------------------------------------------------------

Captured = Annotated[
    list[str] | None,
    typer.Option(
        "--capture",
        metavar="[LINK]",
        help="Capture packets: on LINK, such as a->b, a<->b, a node or a glob; without LINK on "
        "each link of a host, or whose faults lose or change packets. May be repeated.",
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


def captures(links: list[str] | None, snap: int, file: Path | None) -> Wanted:
    """The captures that the options request. UserError."""
    if file is not None and not links:
        raise UserError(f"nothing is captured into {file}", hint="--capture, or --capture LINK")
    return Wanted(tuple(links or ()), check_snap(snap), file or Path(FILE))
