# SPDX-License-Identifier: GPL-2.0-or-later
"""snapshots.md says what transports do today: a change of behaviour is one of that table."""

import difflib
import platform

import pytest

from softroce_lab.experiment.sweep import spec as sweep_spec
from softroce_lab.experiment.sweep import table as sweep_table
from softroce_lab.experiment.sweep.pool import Work
from softroce_lab.paths import PROJECT_ROOT

FILE = "tests/experiment/snapshots.md"
AGAIN = f"lab run snapshots --table {FILE}"
SHORTEST = "8 us"


@pytest.mark.full("snapshots")
def test_the_table_of_snapshots_is_that_of_today(full):
    """All of snapshots.md is made anew and compared; in short, the shortest path's part."""
    if platform.machine() != "x86_64":
        pytest.skip("the kept table is of x86-64")
    sweep = sweep_spec.load("snapshots")
    tasks = sweep.tasks("")
    chosen = tasks if full else sweep_spec.only(tasks, sweep, [f"RTT={SHORTEST}"])
    rows = [{**Work()(task), **task.values} for task in chosen]
    today = sweep_table.document(sweep, rows)
    kept = (PROJECT_ROOT / FILE).read_text()
    if not full:
        kept = without_other_paths(kept)
    difference = list(
        difflib.unified_diff(
            kept.splitlines(), today.splitlines(), "kept", "today", lineterm="", n=1
        )
    )
    assert not difference, "\n".join(
        ["", *difference, "", f"if that is meant: {AGAIN}", "and say in the commit why"]
    )


def without_other_paths(text):
    head, *sections = text.split("\n## ")
    wanted = [section for section in sections if section.startswith(f"RTT {SHORTEST},")]
    assert wanted
    return "\n## ".join([head, *wanted])
