# SPDX-License-Identifier: GPL-2.0-or-later
"""The `lab` command. A verb's module is imported when that verb is named, not before.

The module `cli/<verb>.py` holds `app = typer.Typer(add_completion=False)`: one `@app.command()`
makes a plain verb (`lab up`), an `@app.callback()` beside it makes a group (`lab bench path`).
To add a verb, write its file and put its name into `VERBS`.
"""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from softroce_lab import __version__
from softroce_lab.errors import EnvironmentLackError, LabError

VERBS = ("demo", "up", "down", "status", "exec", "gc", "doctor", "bench", "test")


class LazyGroup(TyperGroup):
    """The verbs, each loaded on first use; the one place where a LabError becomes an exit code."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = dict.fromkeys(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a verb, or None if there is no such verb."""
        if cmd_name in VERBS and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _load(cmd_name)
        return self.commands.get(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; typer itself turns an interrupt into exit code 130."""
        try:
            return super().invoke(ctx)
        except LabError as error:
            typer.echo(f"lab: {error}", err=True)
            raise typer.Exit(error.exit_code) from error


def _load(verb: str) -> Any:
    try:
        module = importlib.import_module(f"softroce_lab.cli.{verb}")
    except ImportError as error:
        application = _unavailable(verb, error)
    else:
        application = module.app
    command = typer.main.get_command(application)
    command.name = verb
    return command


def _unavailable(verb: str, error: ImportError) -> typer.Typer:
    """Stands in for a verb that cannot be imported, so that the others work and help lists it."""
    application = typer.Typer(add_completion=False)

    @application.command(
        help=f"(unavailable: {error})",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    def refuse() -> None:
        raise EnvironmentLackError(
            f"what `lab {verb}` needs",
            f"`lab {verb}` is unavailable: {error}",
            hint="start it with ./lab, which installs what is missing; `lab doctor` names the rest",
        ) from error

    return application


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"softroce_lab {__version__}")
        raise typer.Exit


@app.callback()
def lab(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say it and leave."),
    ] = False,
) -> None:
    """Multi-path RDMA fabrics with injected faults, on one Linux machine."""


def main() -> None:
    """Entry point of the `lab` command."""
    app(prog_name="lab")


if __name__ == "__main__":
    main()
