# SPDX-License-Identifier: GPL-2.0-or-later
"""No option does nothing: what a mode of a verb ignores is refused, pair by pair."""

import pytest
import typer
from typer.testing import CliRunner

from softroce_lab.cli import app as cli
from softroce_lab.cli.modes import ModalCommand
from softroce_lab.errors import UserError

CHOSEN = {
    ("capture", "-r FILE"): ["-r", "mine.pcapng"],
    ("demo", "failover"): ["failover"],
    ("demo", "nothing captured"): ["--capture", "none"],
    ("doctor", "--wireshark print"): ["--wireshark", "print"],
    ("fuzz", "--case"): ["--case", "case.yaml"],
    ("fuzz", "failover"): ["failover"],
    ("inspect path", "--ping"): ["h1", "h2", "--ping"],
    ("inspect path", "without --ping"): ["h1", "h2"],
    ("inspect stats", "--listen"): ["--listen", "127.0.0.1:0"],
    ("perf", "nothing captured"): ["send_bw", "h1", "h2"],
    ("results explain", "--undo"): ["--cost", "--undo", "all"],
    ("run", "--clock both"): ["--clock", "both", "incast"],
}
"""How a mode is chosen, unless its name says that."""
VALUES = dict.fromkeys(
    ("seed", "seeds", "first", "duration", "count", "dport", "worst", "runs", "jobs", "size",
     "snap", "steps", "dies", "back", "depth"), "7",
) | {"clock": "virtual", "proto": "udp", "wireshark": "status", "xdp": "native"}  # fmt: skip


def choosing(verb, mode):
    named = mode.split() if mode.startswith("--") else []
    if verb == "run" and mode != "--list":
        named = [*named, "incast"]
    return CHOSEN.get((verb, mode), named)


def commands():
    root = typer.main.get_command(cli.app)
    found = {verb: root.get_command(None, verb) for verb in cli.VERBS}
    found |= {
        f"{verb} {name}": group.get_command(None, name)
        for verb, group in found.items()
        for name in getattr(group, "commands", {})
    }
    return {verb: each for verb, each in found.items() if isinstance(each, ModalCommand)}


def word(command, name):
    """The parameter on a command line, with a value that it takes."""
    [parameter] = [each for each in command.params if each.name == name]
    if parameter.param_type_name == "argument":
        return ["incast"]
    if parameter.is_flag:
        return [parameter.opts[0]]
    return [parameter.opts[0], VALUES.get(name, "x=1")]


def test_an_option_that_a_mode_ignores_is_refused(monkeypatch):
    monkeypatch.delenv("LAB", raising=False)
    for verb, command in commands().items():
        for mode in command.modes:
            for ignored in mode.ignored:
                line = [*choosing(verb, mode.name), *word(command, ignored)]
                with pytest.raises(UserError, match="no effect with"):
                    command.main(line, prog_name=verb, standalone_mode=False)


def test_what_no_mode_ignores_is_taken(tmp_path):
    assert CliRunner().invoke(cli.app, ["run", "--list", "--json"]).exit_code == 0


def test_the_clock_of_the_file_counts_too():
    command = commands()["run"]
    with pytest.raises(UserError, match="--xdp: no effect with the virtual clock"):
        command.main(["incast", "--xdp", "native"], prog_name="run", standalone_mode=False)
