# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that several parts of `lab bench` take."""

from __future__ import annotations

from typing import Annotated

import typer

Rounds = Annotated[int, typer.Option(min=1, help="Rounds; 15 or more for a 95 % interval.")]
RateSeconds = Annotated[float, typer.Option(min=0.05, help="Length of a rate sample in seconds.")]
Trips = Annotated[int, typer.Option(min=10, help="Round trips in a sample.")]
