# SPDX-License-Identifier: GPL-2.0-or-later
"""The short and long forms that tests/conftest.py provides, tried on a suite of their own."""

import json
from pathlib import Path

import pytest

from softroce_lab.paths import PROJECT_ROOT
from tests import slow

pytest_plugins = ["pytester"]

SUITE = """
import time
import pytest

@pytest.mark.full("marathon")
def test_run(full):
    "Runs far."
    print("kilometres", 42 if full else 1)

@pytest.mark.full("climb")
def test_climb(full):
    "Goes up."
    assert not full

def test_plain():
    time.sleep(0.1)
    end_s = time.process_time() + 0.05
    while time.process_time() < end_s:
        pass
"""


@pytest.fixture
def suite(pytester):
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text())
    pytester.makepyfile(SUITE)
    return pytester


def test_without_an_option_every_line_runs_in_its_short_form(suite):
    result = suite.runpytest_inprocess("-s")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*kilometres 1*"])


def test_quick_leaves_out_what_is_listed(suite, monkeypatch):
    name = "test_quick_leaves_out_what_is_listed.py"
    monkeypatch.setattr(slow, "listed", lambda: {f"{name}::test_climb", f"{name}::test_clim"})
    suite.runpytest_inprocess("--quick").assert_outcomes(passed=2, deselected=1)
    suite.runpytest_inprocess().assert_outcomes(passed=3)


def test_durations_are_recorded_with_the_processor_time(suite):
    suite.runpytest_inprocess("--durations-to", "record").assert_outcomes(passed=3)
    rows = [json.loads(line) for line in (suite.path / "record").read_text().splitlines()]
    assert [name.partition("::")[2] for name, _, _ in rows] == [
        "test_run",
        "test_climb",
        "test_plain",
    ]
    assert all(wall_s > 0 and cpu_s >= 0 for _, wall_s, cpu_s in rows)
    _, wall_s, cpu_s = rows[-1]
    assert 0.04 < cpu_s < wall_s - 0.09  # of its 150 ms it slept 100


def test_full_runs_that_line_only_and_in_its_long_form(suite):
    result = suite.runpytest_inprocess("-s", "--full", "marathon")
    result.assert_outcomes(passed=1, deselected=2)
    result.stdout.fnmatch_lines(["*kilometres 42*"])


def test_a_long_form_that_fails_fails(suite):
    suite.runpytest_inprocess("--full", "climb").assert_outcomes(failed=1, deselected=2)


def test_an_unknown_line_is_refused_with_the_known_ones(suite):
    result = suite.runpytest_inprocess("--full", "sprint")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no line is called 'sprint'*climb, marathon*"])


def test_list_names_the_lines_and_runs_nothing(suite):
    result = suite.runpytest_inprocess("-qq", "--list-full")
    assert result.ret == pytest.ExitCode.OK
    assert [line.split(maxsplit=1) for line in result.outlines if line] == [
        ["climb", "Goes up."],
        ["marathon", "Runs far."],
    ]


def test_the_fixture_without_the_marker_is_an_error(suite):
    suite.makepyfile(test_unmarked="def test_it(full): pass")
    result = suite.runpytest_inprocess("test_unmarked.py")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*marked with pytest.mark.full*"])


HOLDING = """
from hypothesis import given, strategies
from softroce_lab import _native

def test_that_keeps_something(request):
    request.config.kept = _native.MessageConfig()

@given(strategies.integers())
def test_numbers(number):
    pass
"""


def test_native_objects_that_the_session_holds_are_freed_at_the_end(suite, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(PROJECT_ROOT))
    suite.makepyfile(HOLDING)
    result = suite.runpytest_subprocess()
    result.assert_outcomes(passed=2)
    assert "leaked" not in result.stderr.str()
