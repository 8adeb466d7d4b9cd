# SPDX-License-Identifier: GPL-2.0-or-later
"""`python -m benchmarks`: each benchmark measures in its short form; rounds and ratios."""

import importlib
import json
import math
import os
import pkgutil
import signal
import subprocess
import sys
import time

import pytest

import benchmarks
from benchmarks import __main__ as command
from benchmarks import faults, runner
from softroce_lab import topology
from softroce_lab.errors import RunError
from softroce_lab.paths import PROJECT_ROOT

PATIENCE_S = 300.0
OF_LABS = ("up", "path", "faults", "wire", "capture", "programs")
OF_PROGRAMS = ("instructions",)  # tests/programs/test_shift.py measures it
HELPERS = {"__main__", "runner", "traffic", "memory"}
MAY_BE_0 = ("lost", "missed", "not_in_file", "cpu_per_frame_ns", "lossless_frames_per_s")
ARGV = [sys.executable, "-m", "benchmarks"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def measured(*arguments):
    done = subprocess.run(
        [*ARGV, *arguments], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check(name, *arguments):
    document = json.loads(measured(name, "--short", "--rounds", "1", "--json", *arguments))
    found = document["benchmarks"][name]
    assert found["failure"] is None
    assert found["environment"]["kernel"] == os.uname().release
    for figure, value in found["figures"].items():
        assert math.isfinite(value["median"]), figure
        assert value["median"] > 0 or figure.endswith(MAY_BE_0), figure
    return found["figures"]


def test_every_module_but_helpers_is_a_benchmark():
    modules = {each.name for each in pkgutil.iter_modules(benchmarks.__path__)}
    assert modules - HELPERS == set(command.NAMES)
    for name in command.NAMES:
        assert callable(importlib.import_module(f"benchmarks.{name}").measure)


@pytest.mark.parametrize(
    "name", [each for each in command.NAMES if each not in OF_LABS + OF_PROGRAMS]
)
def test_in_memory(name):
    assert check(name)


@needs_root
@pytest.mark.parametrize("name", OF_LABS)
def test_in_a_lab(name, nothing_left):
    if name == "programs":
        pytest.importorskip("pyverbs", reason="no programs of verbs here")
    assert check(name)


def test_two_checkouts_take_turns():
    found = check("verbs", "--against", str(PROJECT_ROOT))
    for value in found.values():
        assert value["ratio"]["median"] > 0
        assert [len(both) for both in value["values"]] == [2]
    text = measured("verbs", "--short", "--rounds", "1", "--against", str(PROJECT_ROOT))
    assert [line.split()[0] for line in text.splitlines()[1:]] == list(found)
    assert text.count("ratio") == len(found)


def test_a_checkout_where_nothing_is_built_is_refused(tmp_path):
    done = subprocess.run(
        [*ARGV, "engine", "--against", str(tmp_path)], cwd=PROJECT_ROOT, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "has no .venv" in done.stderr


class Made:
    """A checkout whose figures are given."""

    def __init__(self, *figures):
        self._figures = iter(figures)

    def measure(self, name, *, short):
        found = next(self._figures)
        if isinstance(found, Exception):
            raise found
        return found


def test_above_one_this_checkout_is_faster():
    ours = [{"x_per_s": 20.0, "x_s": 1.0, "a_over_b": 1.0, "lost": 0}] * 3
    theirs = [{"x_per_s": 10.0, "x_s": 2.0, "a_over_b": 0.5, "lost": 1}] * 3
    found = runner.run_rounds("x", [Made(*ours), Made(*theirs)], 3, short=True)
    assert [found.ratio(name).median for name in ("x_per_s", "x_s", "a_over_b")] == [2, 2, 2]
    assert found.ratio("lost") is None
    assert found.document()["figures"]["x_s"]["values"] == [[1.0, 2.0]] * 3


def test_a_benchmark_that_fails_ends_its_rounds():
    made = Made({"x_s": 1.0}, RunError("no frame arrived"))
    found = runner.run_rounds("x", [made], 3, short=True)
    assert found.failure == "no frame arrived"
    assert found.figures()["x_s"].median == 1


def test_an_error_is_what_follows_the_traceback():
    words = 'Traceback:\n  File "x.py"\nUserError: no such file\n  hint: write it\n'
    assert runner._error(words) == "UserError: no such file\n  hint: write it"


def test_fault_sets_fit_a_link():
    plan = topology.load("path")
    armed = {name: faults.armed(plan, "leaf1->spine1", rules)
             for name, rules in faults.sets().items()}  # fmt: skip
    assert {name: len(each) for name, each in armed.items()} == {
        "random": 1, "gemodel": 1, "named64": 64, "all": 72
    }  # fmt: skip
    assert len({fault.directed_link for each in armed.values() for fault in each}) == 1


@needs_root
def test_an_interrupt_leaves_nothing(nothing_left):
    with subprocess.Popen([*ARGV, "wire"], cwd=PROJECT_ROOT, stderr=subprocess.DEVNULL) as process:
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) != 0
