# SPDX-License-Identifier: GPL-2.0-or-later
"""What the verbs that run experiments have in common: options, and the list of ready ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from softroce_lab.cli import completion
from softroce_lab.errors import UserError
from softroce_lab.experiment import spec
from softroce_lab.inputs.yaml_source import Data

Seeds = Annotated[
    list[int] | None, typer.Option("--seed", min=0, help="Run only this seed; may be repeated.")
]
Transports = Annotated[
    list[str] | None,
    typer.Option(
        "--transport",
        metavar="[LABEL=]NAME|FILE:CLASS",
        help="Run only this transport: one of the file's, a built-in one, or a policy class "
        "in a Python file; may be repeated.",
        autocompletion=completion.transports,
    ),
]
KnownTransports = Annotated[
    list[str] | None,
    typer.Option(
        "--transport",
        metavar="[LABEL=]NAME|FILE:CLASS",
        help="Run only this transport: a built-in one, or a policy class in a Python file; "
        "may be repeated.",
        autocompletion=completion.transports,
    ),
]
"""Of verbs that read no file with transports."""
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
        help="Exit with 1 if a run on the real clock was not faithful, even if it passed.",
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


def print_ready(found: Mapping[str, Sequence[tuple[str, str]]], *, as_json: bool) -> None:
    """Print the ready files of each kind: their names and what they are about."""
    if as_json:
        documents = [
            {"name": name, "kind": kind, "about": about}
            for kind, files in found.items()
            for name, about in files
        ]
        print(json.dumps(documents, indent=1))
        return
    for kind, files in found.items():
        print(f"{kind}s")
        table = Table(box=None, pad_edge=False, show_header=False)
        for name, about in files:
            table.add_row(f"  {name}", about.partition(". ")[0].rstrip("."))
        Console().print(table)
