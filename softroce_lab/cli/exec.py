# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab exec`: run a command at a node."""

from __future__ import annotations

import secrets
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from softroce_lab.cli import completion
from softroce_lab.cli.options import Lab
from softroce_lab.errors import UserError
from softroce_lab.fabric import guests
from softroce_lab.fabric.observe import view
from softroce_lab.programs import execute
from softroce_lab.programs.device import beside

app = typer.Typer(add_completion=False)

_OWN_OPTIONS = ("--lab", "--verbs", "--help")


class Command(TyperCommand):
    """Reports a missing `--` where options of COMMAND would be taken for those of `lab exec`."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """As the parser, once it is clear whose options are meant."""
        if "--" not in args and not ctx.resilient_parsing:
            self._refuse_options_of_the_command(args)
        return super().parse_args(ctx, args)

    @staticmethod
    def _refuse_options_of_the_command(args: list[str]) -> None:
        words = list(args)
        if "--lab" in words[:-1]:
            del words[words.index("--lab") : words.index("--lab") + 2]
        node, *command = [word for word in words if not word.startswith("--lab=")] or [""]
        options = [word for word in command if word.startswith("-") and word not in _OWN_OPTIONS]
        if options:
            line = " ".join(command)
            what = f"lab exec has no option {options[0]}"
            raise UserError(what, hint=f"put -- before the command: lab exec {node} -- {line}")


@app.command(cls=Command)
def exec(  # noqa: A001 - the verb's name
    node: Annotated[str, typer.Argument(help="A host or switch.", autocompletion=completion.nodes)],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND...]", help="The command; default: bash."),
    ] = None,
    lab: Lab = None,
    verbs: Annotated[
        bool, typer.Option("--verbs", help="Let COMMAND find the host's soft RNIC by libibverbs.")
    ] = False,
) -> None:
    """Run COMMAND in the network namespace of NODE; its exit status is COMMAND's.

    The exit status is 127 if the program is missing, 126 if it cannot be run.

    The names of the lab's hosts resolve in the namespace: h1, and h1.eth2 for a rail. On a kernel
    host, COMMAND runs in the guest, whose programs and files are Debian's.

    With --verbs, unmodified programs that use libibverbs find the RNIC softroce0
    (docs/howto/programs.md).
    """
    command = command or ["bash"]
    seen = view.of_lab(lab)
    if any(guest.name == node for guest in seen.plan.guests):
        if verbs:
            hint = "its programs have the kernel's own RNIC: leave --verbs out"
            raise UserError(f"{node} is a kernel host", hint=hint)
        raise typer.Exit(_in_guest(seen, node, command))
    execute.execute(seen, node, command, manager=_connection_manager if verbs else None)


def _connection_manager() -> beside.Service:
    """Imported when a program of RDMA CM begins, which is in a process of its own by then."""
    from softroce_lab.programs.rdmacm.program_service import ProgramService

    return ProgramService(secrets.SystemRandom())


def _in_guest(seen: view.View, node: str, command: list[str]) -> int:
    with seen.guest(node) as guest:
        return guests.kind(seen.plan.node(node).kind).execute(guest, command)
