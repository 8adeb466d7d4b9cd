# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes help.txt, the help pages that `./lab` prints before anything is installed.

    python -m softroce_lab.cli.help_text

One page for each command, after a line `%% COMMAND`.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_WIDTH = "80"
PAGES = Path(__file__).with_name("help.txt")


def render() -> str:
    """The text of all pages."""
    os.environ |= {"COLUMNS": _WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
    from softroce_lab.cli import app  # rich takes its width when typer is imported

    return "".join(_pages(app.typer.main.get_command(app.app), "lab", None))


def _pages(command: Any, name: str, parent: Any) -> Iterator[str]:
    context = command.make_context(name.split()[-1], [], parent=parent, resilient_parsing=True)
    yield f"%% {name}\n" + _help(command, context)
    for part in getattr(command, "list_commands", lambda _: ())(context):
        yield from _pages(command.get_command(context, part), f"{name} {part}", context)


def _help(command: Any, context: Any) -> str:
    from contextlib import redirect_stdout

    with redirect_stdout(io.StringIO()) as page:
        print(command.get_help(context))
    return "\n".join(line.rstrip() for line in page.getvalue().strip().splitlines()) + "\n"


if __name__ == "__main__":
    PAGES.write_text(render(), encoding="utf-8")
