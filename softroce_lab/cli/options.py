# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that several verbs take."""

from __future__ import annotations

import enum
from typing import Annotated

import typer


class XdpMode(enum.StrEnum):
    """How the XDP programs are attached."""

    AUTO = "auto"
    NATIVE = "native"
    GENERIC = "generic"


Xdp = Annotated[XdpMode, typer.Option(help="How to attach the XDP programs.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
