# SPDX-License-Identifier: GPL-2.0-or-later
"""How the progress and the messages of runs reach the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

Progress: TypeAlias = Callable[[int], None]  # messages delivered so far


class Reporter(Protocol):
    """Shows how an experiment gets on."""

    def say(self, text: str) -> None:
        """Show a line: a step begins, or a warning."""

    def run(self, name: str, messages: int) -> Progress:
        """A run of so many messages begins; call what is returned with those delivered so far."""


class Silent:
    def say(self, text: str) -> None:
        """Show nothing."""

    def run(self, name: str, messages: int) -> Progress:
        return lambda _: None
