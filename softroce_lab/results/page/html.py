# SPDX-License-Identifier: GPL-2.0-or-later
"""Pieces of HTML: text is escaped here and nowhere else."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def text(value: object) -> str:
    """A value as text of a page."""
    return html.escape(str(value))


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a caption and row headers; wide ones scroll by themselves, by keyboard, too."""
    columns = "".join(f'<th scope="col">{text(title)}</th>' for title in head)
    body = "".join(_row(row) for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">'
        f"<table><caption>{text(caption)}</caption><thead><tr>{columns}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _row(row: Sequence[object]) -> str:
    first, *rest = row
    cells = "".join(f"<td>{text(cell)}</td>" for cell in rest)
    return f'<tr><th scope="row">{text(first)}</th>{cells}</tr>'


def section(name: str, title: str, *parts: str) -> str:
    """A section with a heading; `name` is its anchor."""
    inside = "\n".join(part for part in parts if part)
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">'
        f'<h2 id="{name}-title">{text(title)}</h2>\n{inside}\n</section>\n'
    )


def paragraph(*lines: str, kind: str = "") -> str:
    """Sentences; `kind` is a class of the style sheet."""
    attribute = f' class="{kind}"' if kind else ""
    return f"<p{attribute}>{text(' '.join(lines))}</p>"


def details(summary: str, inside: str) -> str:
    """What opens on demand, and in print."""
    return f"<details><summary>{text(summary)}</summary>{inside}</details>"


def items(lines: Iterable[str]) -> str:
    """A list; "" without lines."""
    found = "".join(f"<li>{text(line)}</li>" for line in lines)
    return f"<ul>{found}</ul>" if found else ""
