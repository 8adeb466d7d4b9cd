# SPDX-License-Identifier: GPL-2.0-or-later
"""Hints name the command as the user started it."""

import os
import subprocess
import sys

import pytest

from softroce_lab.cli import typed
from softroce_lab.paths import PROJECT_ROOT

VERBS = ("run", "up", "kernel-host")
ERROR = (
    "the lab run-1 died in `lab up`\n  hint: lab up FILE, or sudo lab kernel-host boot; a lab is"
)


@pytest.mark.parametrize("start", ["./lab", "/opt/x/lab", "../a b/lab"])
def test_commands_of_hints_are_as_typed(monkeypatch, start):
    monkeypatch.setenv(typed.VARIABLE, start)
    assert typed.as_typed(ERROR, VERBS) == (
        f"the lab run-1 died in `{start} up`\n"
        f"  hint: {start} up FILE, or sudo {start} kernel-host boot; a lab is"
    )


def test_without_the_launcher_it_is_lab(monkeypatch):
    monkeypatch.delenv(typed.VARIABLE, raising=False)
    assert typed.as_typed(ERROR, VERBS) == ERROR


def test_a_launcher_that_the_shell_finds_is_lab(monkeypatch, tmp_path):
    (tmp_path / "lab").write_text("#!/bin/sh\n")
    (tmp_path / "lab").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv(typed.VARIABLE, str(tmp_path / "lab"))
    assert typed.as_typed(ERROR, VERBS) == ERROR


def test_the_command_says_it_so(tmp_path):
    found = subprocess.run(
        [sys.executable, "-m", "softroce_lab.cli", "run"],
        cwd=tmp_path, env=os.environ | {typed.VARIABLE: "./lab", "PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert found.returncode == 2
    assert "hint: a file, or a name: ./lab run --list" in found.stderr
