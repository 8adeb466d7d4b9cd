# SPDX-License-Identifier: GPL-2.0-or-later
"""Lessons tell the truth: their commands run, and counts and verdicts are those that they show.

What is said of times, and of packets sent in vain, is one run's; only its place is checked. A
machine that is too busy to emulate makes other counts, and its run says so: it may try again.
"""

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from softroce_lab.paths import PROJECT_ROOT

LESSONS = sorted((PROJECT_ROOT / "docs/learn").glob("[0-9]*.md"))
LAB = [sys.executable, "-m", "softroce_lab.cli"]
SECONDS = 120  # a command that takes longer hangs
ATTEMPTS = 4  # where the machine was to blame
SAME_EVERY_TIME = {"transport", "injected drops", "verified (SHA-256)"}


@dataclasses.dataclass
class Step:
    """A command, and the output that the lesson shows."""

    command: str
    shown: list[str]


def steps(text):
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Step(line[2:], []))
            else:
                found[-1].shown.append(line)
    return found


def claims(text):
    """Rules and numbers of occasions, of the tables."""
    return re.findall(r"^\| `([a-z.-]+)` \|.*\| (\d+) \|$", text, re.MULTILINE)


def run(command, folder):
    words = shlex.split(command)
    words = LAB + words[1:] if words[0] == "./lab" else words
    environment = os.environ | {"PYTHONPATH": str(PROJECT_ROOT), "NO_COLOR": "1", "TERM": "dumb"}
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS
    )


def missing(shown, output):
    """Lines of a lesson that are not in the output."""
    lines = [" ".join(line.split()) for line in output.splitlines()]
    return [line for line in shown if not _is_there(line, lines)]


def _is_there(shown, lines):
    line = " ".join(shown.split())
    words = line.split()
    if re.search(r"\bp50 \d", line):
        return any(re.search(r"\bp50 \d", each) for each in lines)
    if words[0] == "pass" and not words[1].startswith("recovery."):
        return line in lines
    if words[0] == "pass":
        return any(each.startswith(" ".join(words[:2])) for each in lines)
    label = re.split(r"\s{2,}", shown.strip())[0]
    if label in SAME_EVERY_TIME:
        return line in lines
    return any(each.startswith(label) for each in lines)


def differences(text, folder):
    """What a lesson says and is not so."""
    checked = ""
    for step in steps(text):
        result = run(step.command, folder)
        if result.returncode != 0 or missing(step.shown, result.stdout):
            return [step.command, missing(step.shown, result.stdout), result.stdout, result.stderr]
        checked += result.stdout
    lines = [" ".join(line.split()) for line in checked.splitlines()]
    wanted = [f"pass {rule} {occasions}" for rule, occasions in claims(text)]
    return [line for line in wanted if line not in lines]


def disturbed(folder):
    """Whether a run there calls itself not faithful."""
    manifests = [json.loads(path.read_text()) for path in folder.glob("runs/*/manifest.json")]
    return any(
        run["fidelity"]["verdict"] != "faithful" for each in manifests for run in each["runs"]
    )


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_does_what_it_says(lesson, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    text = lesson.read_text()
    assert claims(text)
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        wrong = differences(text, folder)
        if not wrong or not disturbed(folder):
            break
    assert wrong == []


def test_there_are_lessons():
    assert [path.stem for path in LESSONS][:1] == ["1-lost-tail"]
    assert all(steps(path.read_text()) for path in LESSONS)


def test_what_a_lesson_should_not_say_is_found():
    output = "  pass          csa.nack       8\ninjected drops     8    8\nretransmitted   8   9\n"
    assert (
        missing(["  pass   csa.nack  8", "injected drops  8  8", "retransmitted  8  264"], output)
        == []
    )
    wrong = [
        "  pass   csa.nack  7",
        "  pass   csa.retransmit  8",
        "injected drops  8  9",
        "goodput  1",
    ]
    assert missing(wrong, output) == wrong
