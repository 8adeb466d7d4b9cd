# SPDX-License-Identifier: GPL-2.0-or-later
import signal
import time
from pathlib import Path

import pytest


@pytest.fixture
def killed(lab):
    """A `lab up` that SIGKILL hit when its first namespace was there."""
    with lab.start("up", "two-hosts", "--name", lab.name) as process:
        while not Path("/run/netns", f"{lab.name}-h1").exists():
            time.sleep(0.0005)
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
    assert lab.traces() != []
    return lab


def test_a_dry_run_only_says(killed):
    document = killed.json("doctor", "--clean", "--dry-run")
    assert {"name": killed.name, "why": "its `lab up` died"} in document["remains"]
    assert not document["removed"]
    assert killed.traces() != []


def test_remains_are_shown_as_such(killed):
    (line,) = [line for line in killed.run("ps").stdout.splitlines() if killed.name in line]
    assert "remains" in line
    assert "lab doctor --clean" in line


def test_remains_are_removed(killed):
    result = killed.run("doctor", "--clean")
    assert result.returncode == 0
    assert f"{killed.name} removed: its `lab up` died" in result.stdout
    assert killed.traces() == []


def test_up_replaces_remains(killed):
    result = killed.up()
    assert result.returncode == 0
    assert "removing what is left" in result.stderr


def test_a_lab_that_is_up_stays(lab):
    lab.up()
    assert lab.name not in lab.run("doctor", "--clean").stdout
    assert lab.json("ps", lab.name)["labs"][0]["state"] == "up"
