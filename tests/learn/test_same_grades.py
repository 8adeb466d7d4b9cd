# SPDX-License-Identifier: GPL-2.0-or-later
"""Grades follow from the submission and the secret: not from hash seeds, nor from the Python.

In full, a hundred submissions of lab 3 are graded, and the time that takes is printed.
"""

import json
import os
import subprocess
import sys
import time

import pytest

from softroce_lab.learn import labs
from softroce_lab.paths import PROJECT_ROOT
from tests.learn import submissions
from tests.learn.submissions import needs_bubblewrap
from tests.learn.test_mistakes import LAB_3

MOST_S = 600  # for a hundred, on two cores without other work
OTHERS = "SOFTROCE_LAB_PYTHONS"
"""Further interpreters that have the package, as a path list: another machine's, another version's.
"""


def graded(folders, python=sys.executable, *, hash_seed="0", jobs=2):
    """What a grader of this interpreter prints."""
    mine = python == sys.executable
    done = subprocess.run(
        [python, "-m", "softroce_lab.cli", "learn", "grade", *map(str, folders), "--json",
         "-q", "--jobs", str(jobs)],
        env={"PATH": "/usr/bin:/bin", "HOME": str(folders[0].parent), "PYTHONHASHSEED": hash_seed,
             "SOFTROCE_LAB_SECRET": "of the tests",
             **({"PYTHONPATH": str(PROJECT_ROOT)} if mine else {})},
        cwd=folders[0].parent, capture_output=True, text=True, timeout=7200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def unlike(number, where, place):
    """A submission: the solution, each of the typical mistakes, and what harms nothing."""
    policies = [submissions.solution(number)]
    if number == 3:
        policies += [submissions.changed(policies[0], *change) for _, change, _ in LAB_3.values()]
        policies += [policies[0]] * 8  # most students find it
    hostile = "\nimport os\nos.fork()\n"
    policies.append(policies[0] + hostile)
    name = f"student{place}"
    return submissions.laid_out(
        number, where / name, policies[place % len(policies)], name, answers=place % 3 > 0
    )


@needs_bubblewrap
def test_grades_do_not_depend_on_hash_seeds_and_interpreters(tmp_path):
    """Lab 7, right and hostile; in another version, if there is one (SOFTROCE_LAB_PYTHONS)."""
    folders = [unlike(7, tmp_path, place) for place in range(2)]
    expected = graded(folders)
    assert [each["points"] for each in expected] == [labs.find(7).points - 10, 10]
    assert graded(folders, hash_seed="1", jobs=1) == expected
    for python in filter(None, os.environ.get(OTHERS, "").split(":")):
        assert graded(folders, python) == expected, python


@needs_bubblewrap
@pytest.mark.full("learn-hundred")
def test_a_hundred_submissions_of_lab_3(full, tmp_path):
    """Lab 3: a hundred submissions, with the time that grading takes."""
    if not full:
        pytest.skip("takes minutes: lab test --full learn-hundred")
    folders = [unlike(3, tmp_path, place) for place in range(100)]
    begun = time.monotonic()
    found = graded(folders)
    taken_s = time.monotonic() - begun
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{len(folders)} submissions: {taken_s:.0f} s, 2 processes; load of the machine: {load}")
    for each, place in zip(found, range(100), strict=True):
        tasks = [item for item in each["items"] if item["task"]]
        right = place % 19 == 0 or 10 <= place % 19 < 18
        assert all(item["state"] == "holds" for item in tasks) == right, each["folder"]
    assert taken_s <= MOST_S, "is the machine without other work?"
    for python in filter(None, os.environ.get(OTHERS, "").split(":")):
        assert graded(folders, python) == found, python
