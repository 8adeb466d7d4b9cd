# SPDX-License-Identifier: GPL-2.0-or-later
"""Submissions for tests: the model solution of a teacher's page, and what students make of it."""

import re

import pytest

from softroce_lab.learn import folder, judge, labs
from softroce_lab.learn.isolation import why_not_isolated
from softroce_lab.paths import PROJECT_ROOT

ISOLATED = why_not_isolated() is None
SECRET = b"a secret of the tests"
NUMBERS = sorted(labs.SERIES)
WITH_POLICY = [number for number in NUMBERS if labs.find(number).tasks]
needs_bubblewrap = pytest.mark.skipif(not ISOLATED, reason=str(why_not_isolated()))


def page(number):
    return (PROJECT_ROOT / f"docs/learn/teacher/lab{number}.md").read_text()


def solution(number):
    """The hand-out with the solution of the teacher's page in its hole; None without tasks."""
    if number not in WITH_POLICY:
        return None
    block = re.search(r"^## Solution\n.*?```python\n(.*?)```", page(number), re.M | re.S)[1]
    handed_out = folder.read_hand_out(labs.find(number))
    first = re.search(r"    def \w+", block)[0]
    hole = re.compile(re.escape(first) + r".*?(?=    # --- )", re.S)
    filled, count = hole.subn(lambda _: block + "\n", handed_out, count=1)
    assert count == 1
    return filled


def changed(source, *changes):
    """A program with these texts replaced, each of which is there."""
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    return source


def inserted(body, top=""):
    """Lab 1's solution, whose hook does this before it returns what is right."""
    hook = "    def packets_to_retransmit(self, first_missing, sent, count):\n"
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    source = changed(solution(1), (hook, hook + lines))
    return source.replace("import numpy as np\n", f"import numpy as np\n{top}\n", 1)


def laid_out(number, where, policy=None, student="example", answers=False):
    """A folder, with a policy and right answers if wanted."""
    lab = folder.start(number, where, student)
    if policy is not None:
        (where / folder.POLICY).write_text(policy)
    if answers:
        answer(where, lab)
    return where


def answer(where, lab, **others):
    """Write the right answers, but for these."""
    submission = folder.read(where)
    text = (where / folder.ANSWERS).read_text()
    for question in lab.questions:
        value = others.get(question.id, f"{question.right(submission.dice):.9g}")
        text = re.sub(rf"^{question.id} = .*$", f"{question.id} = {value}", text, flags=re.M)
    (where / folder.ANSWERS).write_text(text)


def judged(where, **options):
    return judge.judge(folder.read(where), judge.Options(**({"isolated": ISOLATED} | options)))


def judged_task(where, task, **options):
    (item,) = judged(where, task=task, **options).items
    return item


def use_labs(run, write):
    """Start every lab on another machine, and check its cheapest task there.

    `run(*words)` runs a command in the user's home; `write(path, text)` writes a file there.
    """
    listed = run("lab", "learn")
    assert listed.returncode == 0, listed.stderr
    for number, lab in labs.SERIES.items():
        assert lab.title in listed.stdout
        name = f"lab{number}"
        started = run("lab", "learn", "start", str(number), name, "--student", "ada")
        assert started.returncode == 0, started.stderr
        if not lab.tasks:
            continue
        task = min(lab.tasks, key=lambda task: task.points)
        words = ["lab", "learn", "check", name, "--task", task.id, "--seed", "1"]
        untouched = run(*words)
        assert untouched.returncode == 1, untouched.stderr
        assert "policy.py is as it was handed out" in untouched.stdout
        write(f"{name}/policy.py", solution(number))
        checked = run(*words)
        if checked.returncode == 3:  # no user namespaces there
            assert "the policy cannot be isolated" in checked.stderr
            checked = run(*words, "--trust")
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert f"the policy {task.title}" in checked.stdout
