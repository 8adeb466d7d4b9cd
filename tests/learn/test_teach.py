# SPDX-License-Identifier: GPL-2.0-or-later
"""A course in four commands, and the recipes for GitHub Classroom and Gradescope.

Neither service is here: what a recipe has a machine of theirs do is done in a folder.
"""

import csv
import json
import re
import subprocess
import sys

import pytest
from ruamel.yaml import YAML

from softroce_lab.learn import labs
from softroce_lab.paths import PROJECT_ROOT
from tests.learn import submissions
from tests.learn.submissions import needs_bubblewrap

TEXT = (PROJECT_ROOT / "docs/tutorial/course.md").read_text()
RUN_S = 300


def section(head):
    return re.search(rf"^#+ {head}\n(.*?)(?=^##|\Z)", TEXT, re.M | re.S)[1]


@pytest.fixture
def shell(tmp_path):
    """Runs commands in a folder, with `lab` there."""
    program = tmp_path / "lab/bin/lab"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m softroce_lab.cli "$@"\n')
    program.chmod(0o755)

    def run(command):
        return subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S,
            env={"PATH": f"{program.parent}:/usr/bin:/bin", "PYTHONPATH": str(PROJECT_ROOT),
                 "HOME": str(tmp_path)},
        )  # fmt: skip

    return run


@needs_bubblewrap
def test_a_course_in_four_commands(shell, tmp_path):
    lines = re.findall(r"^    (\S.*?)(?:   +.*)?$", section("For teachers: four commands"), re.M)
    assert len(lines) == 4
    start, check, secret, grade = (line.removeprefix("./") for line in lines)
    assert shell(start).returncode == 0
    assert "policy.py is as it was handed out" in shell(check).stdout
    assert shell(secret).returncode == 0
    (tmp_path / "submissions").mkdir()
    (tmp_path / "lab1").rename(tmp_path / "submissions/ada")
    assert shell(grade).returncode == 0
    rows = list(csv.DictReader((tmp_path / "grades.csv").open()))
    assert [(row["student"], row["points"]) for row in rows] == [("ada", "0")]


def test_a_workflow_for_github_classroom(shell, tmp_path):
    recipe = section("GitHub Classroom")
    (written,) = re.findall(r"^```yaml\n(.*?)^```", recipe, re.M | re.S)
    workflow = YAML(typ="safe", pure=True).load(written)
    (job,) = workflow["jobs"].values()
    (check,) = (step["run"] for step in job["steps"] if "learn" in step.get("run", ""))
    [mine] = re.findall(r"`(lab learn start [^`]*)`", " ".join(recipe.split()))
    assert shell(mine).returncode == 0
    checked = shell(check.replace("~/lab/bin/", ""))
    assert checked.returncode == 1  # so that CI is red
    assert "policy.py is as it was handed out" in checked.stdout


@needs_bubblewrap
def test_an_autograder_for_gradescope(shell, tmp_path):
    """Its program writes results.json as the service documents it."""
    setup, program = re.findall(r"^```sh\n(.*?)^```", section("Gradescope"), re.M | re.S)
    for line in setup.splitlines():
        assert subprocess.run(["sh", "-nc", line]).returncode == 0
    submissions.laid_out(7, tmp_path / "submission", submissions.solution(7), "ada", answers=True)
    (tmp_path / "source").mkdir()
    (tmp_path / "source/secret").write_text("of the tests\n")
    (tmp_path / "results").mkdir()
    done = shell(program.replace("cd /autograder", f"cd {tmp_path}"))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "results/results.json").read_text())
    assert found["score"] == labs.find(7).points == sum(each["score"] for each in found["tests"])
    assert {each["status"] for each in found["tests"]} == {"passed"}
    assert all({"name", "max_score", "output"} <= set(each) for each in found["tests"])
