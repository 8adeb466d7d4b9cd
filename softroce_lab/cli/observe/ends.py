# SPDX-License-Identifier: GPL-2.0-or-later
"""The two ends of `lab ping` and `lab trace`, as their arguments name them."""

from __future__ import annotations

from typing import Annotated

import typer

from softroce_lab.cli import completion

Source = Annotated[
    str,
    typer.Argument(
        metavar="A", help="A host, or its port: h1:eth2.", autocompletion=completion.hosts
    ),
]
Target = Annotated[
    str, typer.Argument(metavar="B", help="Another host.", autocompletion=completion.hosts)
]
Rail = Annotated[int, typer.Option(min=1, help="Rail at both hosts.")]
