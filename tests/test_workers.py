# SPDX-License-Identifier: GPL-2.0-or-later
"""The processes that share tests, by what tests/conftest.py has them do."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from softroce_lab.paths import PROJECT_ROOT
from tests import labs

SUITE = """
import pathlib, time
import pytest

@pytest.fixture(params=range(2))
def slow_to_end(request):
    yield
    time.sleep(7)
    pathlib.Path(f"ended-{request.param}").touch()

def test_that_is_interrupted(slow_to_end, request):
    pathlib.Path(f"begun-{request.getfixturevalue('slow_to_end')}-{id(request)}").touch()
    time.sleep(600)
"""


def test_what_tests_set_up_is_taken_down_when_they_are_interrupted(tmp_path):
    """As by Ctrl-C, which reaches all of them. xdist alone interrupts them again after 5 s."""
    (tmp_path / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text())
    (tmp_path / "test_slow_to_end.py").write_text(SUITE)
    outer = {name: value for name, value in os.environ.items() if "XDIST" not in name}
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", ".", "-n", "2"],
        cwd=tmp_path, env=outer | {"PYTHONPATH": str(PROJECT_ROOT)}, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as tests:  # fmt: skip
        begun = labs.eventually(lambda: len(list(tmp_path.glob("begun-*"))) == 2, timeout_s=120)
        os.killpg(tests.pid, signal.SIGINT)
        output, _ = tests.communicate(timeout=120)
    assert begun, output
    assert {each.name for each in tmp_path.glob("ended-*")} == {"ended-0", "ended-1"}, output
