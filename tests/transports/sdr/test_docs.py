# SPDX-License-Identifier: GPL-2.0-or-later
"""The program at the head of docs/sdr.md runs, and the page lists all calls."""

import re
from pathlib import Path

from softroce_lab.transports import sdr

TEXT = (Path(__file__).parents[3] / "docs" / "sdr.md").read_text()
[PROGRAM] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_the_program_runs_and_is_short():
    assert len(PROGRAM.splitlines()) <= 35
    exec(compile(PROGRAM, "docs/sdr.md", "exec"), {})  # noqa: S102 - our own words


def test_every_call_is_listed():
    calls = [name for name in sdr.__all__ if name[0].islower()]
    assert [name for name in calls if f"`{name}(" not in TEXT] == []
