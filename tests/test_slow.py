# SPDX-License-Identifier: GPL-2.0-or-later
"""What `lab test` leaves out: the list, and how it is chosen."""

import json
import re
from pathlib import Path

from tests import slow

ROOT = Path(__file__).resolve().parents[1]


def test_every_slow_test_exists():
    for function in sorted(slow.listed()):
        path, _, name = function.partition("::")
        defined = re.findall(r"^ *def (test_\w+)\(", (ROOT / path).read_text(), re.MULTILINE)
        assert name in defined, f"{function} is gone: remove or rename its line in tests/slow.txt"


def test_slow_functions_are_left_out_until_the_rest_fits(monkeypatch):
    monkeypatch.setattr(slow, "BUDGET_S", 10)
    durations_s = {
        "a/f.py::one": 1.0,
        "a/f.py::two": 8.0,
        "a/f.py::three": 4.0,
        "a/f.py::four": 3.0,
    }
    assert slow.choose(durations_s) == ["a/f.py::two"]


def test_every_file_keeps_its_fastest_function_and_every_room_one(monkeypatch):
    monkeypatch.setattr(slow, "BUDGET_S", 10)
    most_s = slow.MOST_S
    durations_s = {
        "a/f.py::one": most_s - 1.0,
        "a/f.py::two": most_s,
        "a/g.py::three": most_s + 1.0,  # its room has others
        "b/h.py::four": 100.0,
        "b/h.py::five": 101.0,
    }
    assert slow.choose(durations_s) == ["a/f.py::two", "a/g.py::three", "b/h.py::five"]


def test_cases_of_a_function_are_added_and_the_shorter_of_two_runs_counts(tmp_path):
    record = tmp_path / "record"
    lines = [["f.py::t[a]", 3.0, 1.0], ["f.py::t[b::c]", 2.0, 1.0], ["f.py::t[a]", 1.0, 1.0]]
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert slow.measured(record) == {"f.py::t": 3.0}
