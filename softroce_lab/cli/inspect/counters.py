# SPDX-License-Identifier: GPL-2.0-or-later
"""Counters of a port or of a link, in a line."""

from __future__ import annotations

from typing import Any


def show(counters: dict[str, Any] | None) -> None:
    """Print those that are not 0."""
    if counters is not None:
        shown = [f"{name} {count:,}" for name, count in counters.items() if count]
        print(f"    {', '.join(shown) or 'nothing counted'}")
