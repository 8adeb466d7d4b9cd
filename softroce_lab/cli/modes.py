# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that a mode of a verb would ignore are refused: no option does nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from typer.core import TyperCommand

from softroce_lab.errors import UserError


class Mode(NamedTuple):
    """A way to use a verb, and the parameters without effect in it."""

    name: str  # as the error has it
    is_chosen: Callable[[Mapping[str, Any]], bool]  # by the values of all parameters
    ignored: tuple[str, ...]


class ModalCommand(TyperCommand):
    """A command with such modes."""

    modes: ClassVar[tuple[Mode, ...]] = ()

    def invoke(self, ctx: Any) -> Any:
        """As always. UserError for a parameter that the chosen mode ignores."""
        for mode in self.modes:
            if mode.is_chosen(ctx.params):
                refuse(ctx, mode.name, mode.ignored)
        return super().invoke(ctx)


def refuse(ctx: Any, mode: str, ignored: tuple[str, ...]) -> None:
    """UserError if any of these parameters stands on the command line."""
    given = [
        each.opts[0] if each.param_type_name == "option" else each.name.upper()
        for each in ctx.command.params
        if each.name in ignored and ctx.get_parameter_source(each.name).name == "COMMANDLINE"
    ]
    if given:
        raise UserError(f"{', '.join(given)}: no effect with {mode}", hint="leave it out")


def flag(name: str) -> Callable[[Mapping[str, Any]], bool]:
    """The mode is chosen by this parameter."""
    return lambda params: bool(params[name])
