# SPDX-License-Identifier: GPL-2.0-or-later
"""The program of docs/shift.md runs."""

import re
from pathlib import Path

TEXT = (Path(__file__).parents[2] / "docs" / "shift.md").read_text()


def test_the_program_runs():
    (program,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(program, "docs/shift.md", "exec"), {})  # noqa: S102 - our own words
