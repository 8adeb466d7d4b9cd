# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab exec`: run a command at a node."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from softroce_lab.cli import completion
from softroce_lab.cli.options import Lab
from softroce_lab.errors import UserError
from softroce_lab.fabric import guests
from softroce_lab.fabric.observe import view
from softroce_lab.plan.plan import Plan
from softroce_lab.programs import execute

app = typer.Typer(add_completion=False)

_OWN_OPTIONS = ("--lab", "--verbs", "--preload", "--shift", "--transport", "--help")


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
        words = [word for word in words if not word.startswith("--lab=")]
        at = 0  # the node's place
        while at < len(words) and words[at].startswith("-"):
            at += 2 if words[at] == "--transport" else 1
        command = words[at + 1 :]
        options = [word for word in command if word.startswith("-")]
        unknown = [word for word in options if word.partition("=")[0] not in _OWN_OPTIONS]
        if unknown:
            line = " ".join([*words[: at + 1], "--", *command])
            what = f"lab exec has no option {unknown[0]}"
            raise UserError(what, hint=f"put -- before the command: lab exec {line}")


@app.command(cls=Command)
def exec(  # noqa: A001 - the verb's name
    node: Annotated[str, typer.Argument(help="A host or switch.", autocompletion=completion.nodes)],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND...]", help="The command; default: bash."),
    ] = None,
    lab: Lab = None,
    verbs: Annotated[
        bool,
        typer.Option(
            "--verbs", help="Give COMMAND the RDMA devices of the host, softroce0 and on."
        ),
    ] = False,
    preload: Annotated[
        bool,
        typer.Option(
            "--preload",
            help="As --verbs, also for programs that bring their own libibverbs: sets LD_PRELOAD.",
        ),
    ] = False,
    shift: Annotated[
        bool,
        typer.Option(
            "--shift",
            help="As --verbs; RC queue pairs go on over the host's next device when one fails.",
        ),
    ] = False,
    transport: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,OPTION=VALUE...]",
            help="As --verbs; this transport carries RC queue pairs. Both ends need it.",
            autocompletion=completion.transports,
        ),
    ] = None,
) -> None:
    """Run COMMAND at NODE; its exit status is COMMAND's.

    COMMAND gets the node's network, hostname and shared memory. Files and processes are those of
    this machine.

    The exit status is 127 if the program is missing, 126 if it cannot be run.

    Names of hosts resolve: h2 is the host's first address, h2.eth2 that of its interface eth2. A
    host of `kind: kernel` is a virtual machine: COMMAND runs in it, with its Debian files.

    With --verbs, unmodified RDMA programs find the lab's own device, which is not the kernel's rxe:
    lab exec --verbs h1 -- ibv_devinfo
    """
    command = command or ["bash"]
    # What is in the environment is also for the hosts that a launcher reaches from COMMAND.
    if shift:
        os.environ[execute.SHIFT] = "1"
    text_of = None if transport is None else _transport(transport)
    seen = view.of_lab(lab)
    if text_of is not None:
        os.environ[execute.TRANSPORT] = text_of(seen.plan)
    with_rnic = verbs or preload or shift or transport is not None
    run_at(seen, node, command, with_rnic=with_rnic, preload=preload)


def _transport(argument: str) -> Callable[[Plan], str] | None:
    """What makes the transport's configuration for a lab; None: it is RC. UserError."""
    from softroce_lab.experiment.hosts import program_transport  # late: it needs numpy

    chosen = program_transport.of_argument(argument)
    if chosen is None:
        os.environ.pop(execute.TRANSPORT, None)
        return None
    if os.environ.get(execute.SHIFT) == "1":
        what = f"--transport {chosen.name} with --shift: only RC has backups"
        raise UserError(what, hint="leave one of the two out")
    return partial(program_transport.text, chosen)


def run_at(
    seen: view.View, node: str, command: list[str], *, with_rnic: bool, preload: bool = False
) -> NoReturn:
    """Become COMMAND at a node, or end as it ends in a guest. As `execute.execute`."""
    os.environ[completion.LAB_VARIABLE] = seen.plan.name  # for lab commands of COMMAND
    if any(guest.name == node for guest in seen.plan.guests):
        if with_rnic:
            hint = (
                "its programs have the kernel's own RNIC: leave --verbs, --preload, --shift and "
                "--transport out"
            )
            raise UserError(f"{node} is a kernel host", hint=hint)
        raise typer.Exit(_in_guest(seen, node, command))
    execute.execute(seen, node, command, with_rnic=with_rnic, preload=preload)


def _in_guest(seen: view.View, node: str, command: list[str]) -> int:
    with seen.guest(node) as guest:
        return guests.kind(seen.plan.node(node).kind).execute(guest, command)
