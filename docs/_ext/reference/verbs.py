# SPDX-License-Identifier: GPL-2.0-or-later
"""Verbs and their options, from the tree of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference import markdown
from reference.markdown import code, prose
from softroce_lab.cli import app as cli


def page() -> str:
    """Every verb with its arguments and options."""
    import typer

    command = typer.main.get_command(cli.app)
    about = (
        "Every verb takes `--help`. An option in brackets may be left out; `...` means that it may "
        "be given several times."
    )
    context = command.make_context("lab", [], resilient_parsing=True)
    parts = [
        section
        for verb in command.list_commands(context)
        for section in _sections(command.get_command(context, verb), f"lab {verb}", context, 2)
    ]
    return markdown.page("Verbs and options", about, *parts)


def _sections(command: Any, name: str, parent: Any, level: int) -> Iterator[str]:
    context = command.make_context(name.split()[-1], [], parent=parent, resilient_parsing=True)
    parts = getattr(command, "list_commands", lambda _: ())(context)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    usage = usage.replace("[[", "[").replace("]]", "]")
    records = [
        each.get_help_record(context)
        for each in command.get_params(context)
        if not getattr(each, "hidden", False) and each.name != "help"
    ]
    rows = [(code(names), prose(text)) for names, text in filter(None, records)]
    yield markdown.section(
        name,
        _paragraphs(command.help or ""),
        f"```text\n{usage}\n```",
        markdown.table(["argument or option", "meaning"], rows) if rows else "",
        level=level,
    )
    for part in parts:
        yield from _sections(
            command.get_command(context, part), f"{name} {part}", context, level + 1
        )


def _paragraphs(text: str) -> str:
    return "\n\n".join(prose(part) for part in text.replace("\b", "").split("\n\n"))
