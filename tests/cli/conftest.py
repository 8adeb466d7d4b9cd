# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line as a user has it: processes, their output and exit codes."""

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.paths import PROJECT_ROOT

PLAIN = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}
COMMAND = [sys.executable, "-m", "softroce_lab.cli"]


class CommandLine:
    """`lab`, and a lab of a unique name."""

    name: str

    def __init__(self):
        self.name = f"t{secrets.token_hex(3)}"

    def start(self, *arguments, **options):
        return subprocess.Popen(
            [*COMMAND, *arguments],
            env=os.environ | {"PYTHONPATH": str(PROJECT_ROOT), **PLAIN},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            **{"cwd": PROJECT_ROOT, "stdout": subprocess.PIPE, **options},
        )

    def run(self, *arguments, **options):
        with self.start(*arguments, **options) as process:
            stdout, stderr = process.communicate(timeout=60)
        return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)

    def json(self, *arguments):
        result = self.run(*arguments, "--json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def up(self, *arguments, file="two-hosts"):
        return self.run("up", str(file), "--name", self.name, *arguments)

    def fault(self, *arguments, **options):
        return self.run("fault", *arguments, "--lab", self.name, **options)

    def ping(self, *arguments):
        """From h1 to h2, every millisecond."""
        line = ("inspect", "path", "--ping", "h1", "h2", "-i", "1ms", "--lab", self.name)
        return self.run(*line, *arguments)

    def inspect(self, *arguments):
        """The document of a part of `lab inspect`."""
        return self.json("inspect", *arguments, "--lab", self.name)

    def refused(self, *arguments):
        """What a wrong command line is told, in this process."""
        result = CliRunner().invoke(app, [*map(str, arguments)])
        assert result.exit_code == 2, (arguments, result.output, result.exception)
        return result.stderr

    def traces(self):
        """Names that the lab has on the machine."""
        places = (Path("/run/netns"), Path("/run/softroce_lab"))
        names = [entry for place in places if place.is_dir() for entry in place.iterdir()]
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        return [
            *(str(path) for path in names if path.name.partition("-")[0] == self.name),
            *(line for line in mounts if f"/{self.name}/" in line or f"/{self.name}-" in line),
        ]


def command_line():
    """The command line of root; whatever lab is up in the end goes down."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    line = CommandLine()
    yield line
    line.run("down", line.name)
    line.run("doctor", "--clean")
    assert line.traces() == []


lab = pytest.fixture(command_line)


@pytest.fixture(scope="module")
def up():
    """A lab of two hosts over a switch, for all tests of a module."""
    for line in command_line():
        assert line.up().returncode == 0
        yield line


@pytest.fixture
def intruder(up, tmp_path):
    """A symbolic link to a directory, where labs are."""
    link = Path("/run/softroce_lab", f"{up.name}z")
    link.symlink_to(tmp_path)
    yield link
    link.unlink()
