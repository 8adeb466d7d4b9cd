# SPDX-License-Identifier: GPL-2.0-or-later
"""Halves of the labs on the real clock tell the truth: their commands run, over real packets.

Counts and verdicts that are the same in each run have to be those shown. Of times, and of packets
sent in vain, only the place is checked. A machine that is too busy to emulate makes other counts,
and its run says so: it may try again.
"""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from softroce_lab.learn import folder
from softroce_lab.paths import PROJECT_ROOT
from tests.labs import prepare_verbs
from tests.learn import submissions
from tests.learn.submissions import WITH_POLICY

SECONDS = 180  # a command that takes longer hangs
ATTEMPTS = 3  # where the machine was to blame
SAME_EVERY_TIME = {"transport", "messages delivered", "verified, every byte", "once and in order",
                   "model (SHA-256)"}  # fmt: skip
SAME_COUNTS = {"rc.go-back-n", "rc.nak-names-gap", "rc.retransmit-same"}
"""Of rules of RC. They are the same where one named packet is lost, or each tail."""

TIMED = "rc.retransmit-same"
"""How many an emulated guest sends again depends on its timer, where its processor is late."""

AT_LEAST = "rc.go-back-n"
"""A guest whose timer runs out late goes back once more than it has to."""

SURE = ("lab verify rxe.pcapng", "lab fault show", "lab inspect path", "lab down")
"""Commands whose output is the same in each run."""


@dataclasses.dataclass
class Step:
    """A command, and the output that the text shows."""

    command: str
    shown: list[str]


def text(number):
    return (folder.CONTENT / str(number) / folder.REAL_TEXT).read_text()


def steps(written):
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", written, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Step(line[2:], []))
            else:
                found[-1].shown.append(line)
    return found


def claims(written):
    """Rules and numbers of occasions, of the tables."""
    return re.findall(r"^\| `([a-z.-]+)` \|.*\| (\d+) \|$", written, re.MULTILINE)


def environment(home):
    """A shell's with a home of its own, in which `lab` is this checkout's.

    What was downloaded or built for the user of the tests is used again.
    """
    (home / "bin").mkdir(exist_ok=True)
    program = home / "bin/lab"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m softroce_lab.cli "$@"\n')
    program.chmod(0o755)
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    more = {"PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(PROJECT_ROOT),
            "NO_COLOR": "1", "TERM": "dumb", "HOME": str(home), "XDG_CACHE_HOME": cache,
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_DATA_HOME": str(home / "data")}  # fmt: skip
    return os.environ | more


def run(command, where):
    return subprocess.run(
        ["bash", "-c", command], cwd=where, env=environment(where.parent), capture_output=True,
        text=True, timeout=SECONDS,
    )  # fmt: skip


def missing(step, output):
    """Lines of a text that are not in the output."""
    lines = [" ".join(line.split()) for line in output.splitlines()]
    if step.command.startswith("tshark"):  # other packets in each run, with as many columns
        columns = min((len(line.split()) for line in step.shown), default=1)
        found = any(len(line.split()) >= columns for line in lines)
        return [] if found else step.shown or ["a line"]
    sure = step.command.startswith(SURE)
    return [line for line in step.shown if not _is_there(line, lines, sure=sure)]


def _is_there(shown, lines, *, sure):
    line = " ".join(shown.split())
    words = line.split()
    if re.search(r"\bp50 \d", line):
        return any(re.search(r"\bp50 \d", each) for each in lines)
    counted = words[0] == "pass" and words[1] in SAME_COUNTS | {"sr.repaired"}
    if counted and (words[1] == TIMED or not sure):
        return any(each.startswith(" ".join(words[:2])) for each in lines)
    if counted and words[1] == AT_LEAST:
        found = [each.split() for each in lines if each.startswith(" ".join(words[:2]))]
        return any(_number(each[2]) >= _number(words[2]) for each in found)
    if words[0] == "pass" and not words[1].startswith(("recovery.", "shift.once")):
        return line in lines
    if words[0] == "pass":
        return any(each.startswith(" ".join(words[:2])) for each in lines)
    label = re.split(r"\s{2,}", shown.strip())[0]
    if sure or label in SAME_EVERY_TIME:
        return line in lines
    return any(each.startswith(label) for each in lines)


def _number(word):
    return int(word.replace(",", ""))


def differences(written, where):
    """What a text says and is not so."""
    checked = ""
    for step in steps(written):
        result = run(step.command, where)
        absent = missing(step, result.stdout)
        if result.returncode != 0 or absent:
            return [step.command, absent, result.stdout, result.stderr]
        checked += result.stdout
    lines = [" ".join(line.split()) for line in checked.splitlines()]
    wanted = [f"pass {rule} {occasions}" for rule, occasions in claims(written)]
    return [line for line in wanted if line not in lines]


def disturbed(where):
    """Whether a run there calls itself not faithful, or does not have an end.

    A demo whose job stops on a busy machine says so, and leaves no run.
    """
    manifests = [json.loads(path.read_text()) for path in where.glob("runs/*/manifest.json")]
    if not manifests or any(each["state"] != "done" for each in manifests):
        return True
    return any(
        run["fidelity"]["verdict"] != "faithful" for each in manifests for run in each["runs"]
    )


def take_down(written, where):
    """Labs that a text brings up, where one of its commands failed."""
    for step in steps(written):
        if step.command.startswith("lab down "):
            run(step.command, where)


@pytest.mark.parametrize("number", WITH_POLICY)
def test_the_half_on_the_real_clock_does_what_it_says(number, tmp_path):
    """In a folder as a student has it, with the model solution in it."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    written = text(number)
    tools = {"tshark": "tshark", "kernel.yaml": "qemu-system-x86_64"}
    for word, tool in tools.items():
        if word in written and shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    if "lab perf" in written:
        prepare_verbs()
    for attempt in range(ATTEMPTS):
        where = submissions.laid_out(
            number, tmp_path / str(attempt) / "lab", submissions.solution(number)
        )
        try:
            wrong = differences(written, where)
            again = bool(wrong) and disturbed(where)
        except subprocess.TimeoutExpired as error:
            wrong, again = [str(error)], True
        finally:
            take_down(written, where)
        if not again:
            break
    assert wrong == []


@pytest.mark.parametrize("number", WITH_POLICY)
def test_it_uses_what_is_there(number):
    """Experiments that lie in the folder; no link; each lab that comes up goes down again."""
    written = text(number)
    commands = [step.command for step in steps(written)]
    for named in re.findall(r"(?:run|up) (\w+\.yaml)", " ".join(commands)):
        assert (folder.CONTENT / str(number) / named).is_file()
    assert "](" not in written  # a link of this checkout leads nowhere in a student's folder
    up, down = (sum(each.startswith(f"lab {verb}") for each in commands) for verb in ("up", "down"))
    assert up == down
