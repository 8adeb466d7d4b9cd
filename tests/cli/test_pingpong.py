# SPDX-License-Identifier: GPL-2.0-or-later
import re

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app


@pytest.mark.parametrize(("kind", "size"), [("rc", 4096), ("uc", 4096), ("ud", 2048)])
def test_lines_of_the_programs(lab, kind, size):
    lab.up()
    result = lab.run("pingpong", "h1", "h2", "--lab", lab.name, "-c", kind, "-n", "100", "--quiet")
    assert result.returncode == 0, result.stderr
    near, far, moved, rate = result.stdout.splitlines()
    pattern = r"LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ::ffff:10\.0\.0\.%d"
    assert re.fullmatch("  local address:  " + pattern % 1, near)
    assert re.fullmatch("  remote address: " + pattern % 2, far)
    number = r"\d+\.\d{2}"
    assert re.fullmatch(f"{2 * size * 100} bytes in {number} seconds = {number} Mbit/sec", moved)
    assert re.fullmatch(f"100 iters in {number} seconds = {number} usec/iter", rate)


def test_options(lab):
    lab.up()
    found = lab.json("pingpong", "--lab", lab.name, "-s", "100", "-n", "50", "-m", "256", "-r",
                     "20", "-e")  # fmt: skip
    assert (found["bytes"], found["iterations"]) == (2 * 100 * 50, 50)
    assert found["usec_per_iteration"] > 0


@pytest.mark.parametrize(
    ("arguments", "states"),
    [
        (["-n", "0"], "-n 0 is too few"),
        (["-r", "0"], "-r 0 is not possible"),
        (["-g", "0", "-f", "two-hosts"], "GID index 0 means nothing"),
        (["-d", "rxe0"], "lab pingpong h1 h2"),
        (["-c", "ud", "-s", "5000"], "-s 5000 over UD"),
        (["-m", "1500"], "path MTU of 1500"),
    ],
)
def test_nonsense_is_refused(arguments, states):
    result = CliRunner().invoke(app, ["pingpong", *arguments])
    assert result.exit_code == 2
    assert states in result.stderr
