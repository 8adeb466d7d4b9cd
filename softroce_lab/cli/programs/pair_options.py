# SPDX-License-Identifier: GPL-2.0-or-later
"""What `lab perf` and `lab pingpong` have in common: two hosts, and flags of rdma-core."""

from __future__ import annotations

from typing import Annotated

import typer

from softroce_lab.cli import completion

Client = Annotated[
    str | None,
    typer.Argument(help="A host; default: the first.", autocompletion=completion.hosts),
]
Server = Annotated[
    str | None, typer.Argument(help="Another host.", autocompletion=completion.hosts)
]
RxDepth = Annotated[int, typer.Option("-r", "--rx-depth", help="Posted receives.")]
Events = Annotated[
    bool, typer.Option("-e", "--events", help="Wait for completion events instead of polling.")
]
ExchangePort = Annotated[
    int,
    typer.Option(
        "-p", "--port", min=1, max=65535, help="TCP port of the exchange; kernel hosts only."
    ),
]
TemporaryLab = Annotated[
    str | None,
    typer.Option(
        "-f",
        "--topology",
        help="Run in a temporary lab of this topology.",
        autocompletion=completion.topologies,
    ),
]
# Here -q is the number of queue pairs, as in perftest.
LongQuiet = Annotated[bool, typer.Option("--quiet", help="Print no progress.")]
