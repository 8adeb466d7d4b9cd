# SPDX-License-Identifier: GPL-2.0-or-later
"""Every lab: its model solution passes, its hand-out says what to do, its texts are true."""

import io
import re
import shlex
import subprocess
import sys

import pytest
from ruamel.yaml import YAML

from softroce_lab.learn import folder, labs
from softroce_lab.learn.lab import variant
from softroce_lab.paths import PROJECT_ROOT
from tests.learn import submissions
from tests.learn.submissions import NUMBERS

LAB = [sys.executable, "-m", "softroce_lab.cli"]


@pytest.mark.parametrize("number", NUMBERS)
def test_the_model_solution_has_all_points(number, tmp_path):
    where = tmp_path / "lab"
    submissions.laid_out(number, where, submissions.solution(number), "ada", answers=True)
    verdict = submissions.judged(where, secret=submissions.SECRET)
    assert [item.text for item in verdict.items if item.state != "holds"] == []
    assert verdict.points == verdict.most == labs.find(number).points
    assert verdict.next_step == "nothing: everything holds"


@pytest.mark.parametrize("number", NUMBERS)
def test_the_hand_out_says_what_to_do(number, tmp_path):
    """Also with a comment in it, which is no work."""
    lab = labs.find(number)
    where = submissions.laid_out(number, tmp_path / "lab")
    if lab.tasks:
        commented = folder.read_hand_out(lab) + "\n# I have thought about it\n"
        (where / folder.POLICY).write_text(commented)
    verdict = submissions.judged(where)
    assert verdict.points == 0
    assert {item.state for item in verdict.items} == {"open"}
    assert verdict.next_step == "prediction p1: write your number behind 'p1 =' in answers.txt"
    tasks = [item.text for item in verdict.items if item.task]
    assert all(f"write its method {lab.hole}" in text for text in tasks)
    assert {task.needs for task in lab.tasks} <= {"", *(task.id for task in lab.tasks)}
    for name in ("README.md", "answers.txt", "experiment.yaml"):
        assert "{{" not in (where / name).read_text()


@pytest.mark.parametrize("number", NUMBERS)
def test_the_folder_s_experiment_is_the_one_that_is_judged(number, tmp_path):
    where = submissions.laid_out(number, tmp_path / "lab")
    written = YAML(typ="safe", pure=True).load(io.StringIO((where / "experiment.yaml").read_text()))
    lab = labs.find(number)
    assert written == lab.experiment(folder.read(where).dice)
    lab.read(written)


@pytest.mark.parametrize("number", NUMBERS)
def test_variants_differ(number):
    lab = labs.find(number)
    names = ("ada", "grace", "edsger", "barbara")
    made = [str(lab.experiment(variant(number, name))) for name in names]
    assert len(set(made)) == len(names)
    assert lab.experiment(variant(number, " Ada")) == lab.experiment(variant(number, "ada"))


# --- Texts -----------------------------------------------------------------------------------


def console(text):
    """Commands, and the lines of output that are shown for each."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


@pytest.mark.parametrize("number", NUMBERS)
def test_every_command_of_the_text_does_what_it_shows(number, tmp_path):
    """Of the student `example`, whose numbers the text shows."""
    where = submissions.laid_out(number, tmp_path / "lab", submissions.solution(number))
    shown = console((where / "README.md").read_text())
    assert len(shown) >= 2
    for command, lines in shown:
        words = shlex.split(command)
        assert words[0] == "lab"
        done = subprocess.run(
            [*LAB, *words[1:], *(["-q"] if words[1] == "run" else [])],
            cwd=where, capture_output=True, text=True, timeout=120,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(PROJECT_ROOT), "HOME": str(tmp_path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        output = [" ".join(line.split()) for line in done.stdout.splitlines()]
        assert [line for line in lines if " ".join(line.split()) not in ["...", *output]] == []
