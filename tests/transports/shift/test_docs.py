# SPDX-License-Identifier: GPL-2.0-or-later
"""The program of docs/shift.md runs, and its excerpt is what the demo prints."""

import re
from pathlib import Path

from softroce_lab.cli import demo_failover
from softroce_lab.experiment.failover import rig as failover
from softroce_lab.experiment.failover.rig import Options

TEXT = (Path(__file__).parents[3] / "docs" / "shift.md").read_text()


def test_the_program_runs():
    (program,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(program, "docs/shift.md", "exec"), {})  # noqa: S102 - our own words


def test_the_excerpt_is_what_the_demo_prints():
    assert "lab demo failover --clock virtual --steps 20" in TEXT
    printed = demo_failover.lines(failover.run_on("virtual", Options(steps=20)))
    assert "\n".join(["```", *printed, "```"]) in TEXT
