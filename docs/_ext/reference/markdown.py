# SPDX-License-Identifier: GPL-2.0-or-later
"""Markdown from texts of the code, whose backticks mark code already."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"([\\*_<>\[\]{}$#~|])")


def prose(text: str) -> str:
    """The text, with everything escaped that is no code."""
    parts = " ".join(text.split()).split("`")
    if len(parts) % 2 == 0:  # an odd backtick is one of the text
        return _SPECIAL.sub(r"\\\1", " ".join(text.split()).replace("`", "'"))
    return "".join(
        _SPECIAL.sub(r"\\\1", part) if n % 2 == 0 else code(part) for n, part in enumerate(parts)
    )


def code(text: str) -> str:
    """As code, also in a cell of a table; nothing for no text."""
    return f"`{text.replace('|', chr(92) + '|')}`" if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def page(title: str, about: str, *sections: str) -> str:
    """A page that begins with what it is about."""
    return "\n".join([f"# {title}\n", f"{about}\n", *sections])


def section(title: str, *parts: str, level: int = 2) -> str:
    """A section of Markdown parts; empty ones are left out."""
    return "\n".join(
        [f"{'#' * level} {title}\n", *(f"{part.rstrip()}\n" for part in parts if part)]
    )
