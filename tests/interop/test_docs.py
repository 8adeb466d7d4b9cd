# SPDX-License-Identifier: GPL-2.0-or-later
"""The program of docs/connections.md runs, as it stands there."""

import re
from pathlib import Path

from softroce_lab.fabric import runtime

TEXT = (Path(__file__).parents[2] / "docs" / "connections.md").read_text()
(PROGRAM,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_ping_pong_by_rdma_cm(capsys):
    exec(compile(PROGRAM, "docs/connections.md", "exec"), {"__name__": "pingpong"})  # noqa: S102
    assert capsys.readouterr().out.splitlines() == [f"PING {n}" for n in range(5)]
    assert runtime.examine("two-hosts") is None  # it takes its lab away
