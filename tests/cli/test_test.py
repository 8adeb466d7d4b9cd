# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab test`, started on single lines of this very suite."""

import os
import subprocess
import sys

from softroce_lab import paths
from tests import slow


def lab_test(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "softroce_lab.cli", "test", *arguments],
        cwd="/",
        env=os.environ | {"PYTHONPATH": str(paths.PROJECT_ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_what_follows_the_dashes_goes_to_pytest():
    result = lab_test("--", "tests/test_paths.py", "-q")
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout


def test_bad_input_has_exit_code_2():
    for arguments in (
        ("--full", "no-such-line"),
        ("--", "tests/no_such_file.py"),
        ("--all", "--full", "preparation"),
    ):
        assert lab_test(*arguments).returncode == 2, arguments


def test_the_list_has_one_line_for_each_long_form():
    result = lab_test("--list")
    assert result.returncode == 0, result.stdout + result.stderr
    lines = dict(line.split(maxsplit=1) for line in result.stdout.splitlines() if line)
    assert lines["preparation"].startswith("A first start")


def test_slow_tests_are_left_out_unless_all_are_asked_for():
    slow_one = sorted(slow.listed())[0]
    asked = ["--", slow_one.partition("::")[0], "--collect-only", "-q"]
    assert slow_one not in lab_test(*asked).stdout
    assert slow_one in lab_test("--all", *asked).stdout


def test_processors_share_the_tests_unless_they_are_of_one_file():
    workers = min(4, os.cpu_count())
    for where, shared in (("tests/plan", True), ("tests/plan/test_plan.py", False)):
        result = lab_test("--", where, "-k", "no_such_test", "-v")
        assert result.returncode == 2, result.stdout + result.stderr
        assert (f"created: {workers}/{workers} workers" in result.stdout) == shared
