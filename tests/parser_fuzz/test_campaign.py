# SPDX-License-Identifier: GPL-2.0-or-later
"""A fuzzer at work: it finds what is planted, keeps it, and stops when its time is over."""

import os
import subprocess
import sys
import time

import pytest

from softroce_lab.paths import PROJECT_ROOT
from tests.parser_fuzz import campaign
from tests.parser_fuzz.catalogue import PLANTED, PYTHON
from tests.parser_fuzz.guard import TooMuchError, guarded
from tests.parser_fuzz.mutate import Mutator

MOST_CPU_S = 120
RUN = [sys.executable, "-m", "tests.parser_fuzz.run"]


@pytest.fixture(autouse=True)
def work(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "WORK", tmp_path)


def test_a_planted_bug_is_found_and_found_again():
    pytest.importorskip("atheris")
    report = campaign.run(PLANTED, [*RUN, "planted", "--atheris", "-seed=1"], MOST_CPU_S)
    (found,) = campaign.findings(PLANTED)
    assert report.code != 0
    assert found.read_bytes().startswith(b"BUG!")
    again = subprocess.run(
        [*RUN, "planted", found],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=PROJECT_ROOT,
    )
    assert again.returncode != 0
    assert "found it" in again.stderr


def test_a_run_ends_when_its_processor_time_is_used_up():
    pytest.importorskip("atheris")
    report = campaign.run(PYTHON["live"], [*RUN, "live", "--atheris", "-seed=1"], 3)
    assert report.code == 0, report.output[-2000:]
    assert report.cpu_s >= 3
    assert report.executions > 0
    assert report.edges > 0
    assert not campaign.findings(PYTHON["live"])


def busy(data):
    until_s = time.process_time() + 1.1
    while time.process_time() < until_s:
        pass


def test_an_input_may_not_take_long():
    with pytest.raises(TooMuchError, match="s for 1 bytes"):
        guarded(busy, b"x")


HUNGRY = """
from tests.parser_fuzz import guard
guard.MOST_S, guard.MOST_GROWTH_KIB = 60, 64 << 10
guard.guarded(lambda data: len(b"x" * (256 << 20)), b"x")
"""


def test_an_input_may_not_take_much_memory():
    """In a process of its own: what counts is what none before it has taken."""
    command = [sys.executable, "-c", HUNGRY]
    done = subprocess.run(
        command, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert "MiB for 1 bytes" in done.stderr


HOARDING = """
import sys
from tests.parser_fuzz.guard import check_kept
kept = []
keep = kept.append if sys.argv[1] == "kept" else len
print(check_kept(lambda data: keep(data * 4096), [b"xy", b"z"], 0.1))
"""


@pytest.mark.parametrize("what", ["kept", "forgotten"])
def test_what_inputs_leave_behind_is_a_finding(what):
    plain = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    done = subprocess.run(
        [sys.executable, "-c", HOARDING, what],
        cwd=PROJECT_ROOT, env=plain, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if what == "kept":
        assert "KiB more after" in done.stderr
    else:
        assert int(done.stdout) > 2, done.stderr


def test_blind_changes_are_the_same_each_time():
    first, second = (list(Mutator([b"abc" * 9, b""], [b"word"], 7).inputs(200)) for _ in range(2))
    assert first == second
    assert len(set(first)) > 100
