# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab ssh`: run a command at a host, called as ssh(1) is."""

from __future__ import annotations

import getopt
import os
import pwd
from typing import Annotated

import typer

from softroce_lab.cli import exec as lab_exec
from softroce_lab.cli.options import Lab
from softroce_lab.errors import UserError
from softroce_lab.fabric.observe import view
from softroce_lab.plan.plan import Plan
from softroce_lab.programs import execute

app = typer.Typer(add_completion=False)

# Options of ssh(1) that change nothing in a lab, and -n. A colon: the option has a value.
_OPTIONS = "1246AaB:b:Cc:E:e:F:I:i:J:Kkl:m:no:p:qS:TtvXxYy"


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def ssh(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="HOST [COMMAND...]",
            help="A host by name or address, and what its shell runs; default: a shell.",
        ),
    ],
    lab: Lab = None,
) -> None:
    """Run COMMAND at HOST as ssh would, for launchers such as mpirun.

    The words of COMMAND are joined by spaces and given to your shell. COMMAND has the RDMA device
    softroce0, and the environment and folder of `lab ssh`. The exit status is COMMAND's.

    Options of ssh are allowed before and after HOST. -n withholds the input. Those that change
    nothing in a lab are ignored, such as -l, -p, -o, -q, -x. --lab comes before them.

    lab exec --verbs h1 -- mpirun --mca plm_rsh_agent "$PWD/lab ssh" -H h1,h2 hostname
    """
    flags, place, command = _parse(words)
    seen = view.of_lab(lab)
    node = _host(seen.plan, place)
    if "-n" in flags:
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
    shell = _shell() if execute.has_rnic(seen.plan, node) else "/bin/sh"
    argv = [shell, "-c", " ".join(command)] if command else [shell]
    lab_exec.run_at(seen, node, argv, with_rnic=execute.has_rnic(seen.plan, node))


def _parse(words: list[str]) -> tuple[set[str], str, list[str]]:
    """Flags, host and command. As for ssh, options may stand before and after the host."""
    try:
        before, rest = getopt.getopt(words, _OPTIONS)
        after, command = getopt.getopt(rest[1:], _OPTIONS)
    except getopt.GetoptError as error:
        hint = "leave it out: lab ssh HOST COMMAND"
        raise UserError(f"lab ssh: {error.msg}", hint=hint) from error
    if not rest:
        raise UserError("lab ssh: no host is named", hint="lab ssh HOST COMMAND")
    return {flag for flag, _ in before + after}, rest[0].rpartition("@")[2], command


def _host(plan: Plan, place: str) -> str:
    """The host of this name, name of a rail, or address; another word is returned as it is."""
    for host in plan.hosts:
        for port in host.ports:
            rail = f"{host.name}.{port.name}"
            if place in (rail, str(port.address), str(port.address6)):
                return host.name
    return place


def _shell() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    except KeyError:
        return "/bin/sh"
