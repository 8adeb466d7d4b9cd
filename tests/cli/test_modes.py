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
    ("demo", "--clock virtual"): ["--clock", "virtual"],
    ("demo", "failover"): ["failover"],
    ("demo", "file"): [],
    ("demo", "nothing captured"): ["--capture", "none"],
    ("fuzz", "--case"): ["--case", "case.yaml"],
    ("fuzz", "--failover"): ["--failover"],
    ("perf", "nothing captured"): ["send_bw", "h1", "h2"],
    ("run", "--dry-run"): ["--dry-run", "incast"],
    ("run", "--list"): ["--list"],
    ("run", "nothing captured"): ["incast"],
    ("stats", "--json"): ["--json"],
    ("stats", "--listen"): ["--listen", "127.0.0.1:0"],
    ("stats", "--openmetrics"): ["--openmetrics"],
    ("sweep", "--dry-run"): ["--dry-run", "snapshots"],
    ("sweep", "--list"): ["--list"],
    ("top", "--json"): ["--json"],
}  # fmt: skip
"""How each mode is chosen; no mode is without one."""


VALUES = {
    **dict.fromkeys(
        (
            "seed",
            "seeds",
            "first",
            "minutes",
            "jobs",
            "size",
            "snap",
            "rounds",
            "packets",
            "steps",
            "dies",
            "back",
            "depth",
        ),
        "7",
    ),
    "clock": "virtual",
    "payload": "none",
    "deadline": "1s",
    "ip": "6",
    "xdp": "native",
}


def commands():
    root = typer.main.get_command(cli.app)
    found = {verb: root.get_command(None, verb) for verb in cli.VERBS}
    found |= {
        f"{verb} {name}": each
        for verb, group in found.items()
        for name, each in getattr(group, "commands", {}).items()
    }
    return {verb: each for verb, each in found.items() if isinstance(each, ModalCommand)}


PAIRS = [
    (verb, mode.name, ignored)
    for verb, command in commands().items()
    for mode in command.modes
    for ignored in mode.ignored
]


def word(command, name):
    """The parameter on a command line, with a value that it takes."""
    [parameter] = [each for each in command.params if each.name == name]
    if parameter.param_type_name == "argument":
        return ["incast"]
    if parameter.is_flag:
        return [parameter.opts[0]]
    return [parameter.opts[0], VALUES.get(name, "x=1")]


@pytest.mark.parametrize(("verb", "mode", "ignored"), PAIRS)
def test_an_option_that_a_mode_ignores_is_refused(verb, mode, ignored, monkeypatch):
    monkeypatch.delenv("LAB", raising=False)
    command = commands()[verb]
    line = [*CHOSEN[verb, mode], *word(command, ignored)]
    with pytest.raises(UserError, match="no effect with"):
        command.main(line, prog_name=verb, standalone_mode=False)


def test_what_no_mode_ignores_is_taken(tmp_path):
    assert CliRunner().invoke(cli.app, ["run", "--list", "--json"]).exit_code == 0


def test_the_clock_of_the_file_counts_too():
    command = commands()["run"]
    with pytest.raises(UserError, match="--xdp: no effect with the virtual clock"):
        command.main(["incast", "--xdp", "native"], prog_name="run", standalone_mode=False)
