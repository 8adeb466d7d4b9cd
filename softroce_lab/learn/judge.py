# SPDX-License-Identifier: GPL-2.0-or-later
"""Judges a submission: its answers against what is measured, its policy by the lab's tasks.

All of it runs on the virtual clock, so a grade is the same on every machine. A task passes if it
passes with each seed.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.learn import seeds
from softroce_lab.learn.crew import Crew, Policy
from softroce_lab.learn.folder import ANSWERS, POLICY, Submission, shape
from softroce_lab.learn.lab import Lab, Question, Ran, Task
from softroce_lab.learn.trial import Written

State: TypeAlias = Literal["holds", "fails", "open"]

_MOST_SMALLER = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """A question or a task, judged."""

    id: str
    title: str
    state: State  # open: there is nothing to judge yet
    points: int
    most: int
    text: str = ""  # what does not hold, and what to do about it
    seed: int | None = None  # that a task failed with
    replay: str = ""  # the command that shows it again
    task: str | None = None

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """A submission, judged."""

    folder: str
    lab: int
    student: str
    items: tuple[Item, ...]
    shape: str = ""  # of its policy: equal ones are one program

    @property
    def points(self) -> int:
        """Of all items."""
        return sum(item.points for item in self.items)

    @property
    def most(self) -> int:
        """That there are."""
        return sum(item.most for item in self.items)

    @property
    def passed(self) -> bool:
        """Whether everything holds."""
        return all(item.state == "holds" for item in self.items)

    @property
    def next_step(self) -> str:
        """What to do first."""
        for item in self.items:
            if item.state != "holds":
                return f"{item.title}: {item.text}"
        return "nothing: everything holds"


@dataclasses.dataclass(frozen=True, slots=True)
class How:
    """How strictly, and what of it."""

    shut_in: bool  # in bubblewrap
    secret: bytes | None = None  # for hidden seeds
    task: str | None = None  # that one alone,
    seed: int | None = None  # with this seed alone,
    size_bytes: int | None = None  # and so much to send
    prints: bool = False  # the policy may


Failed: TypeAlias = Callable[[Task, Ran], None]


def judge(submission: Submission, how: How, failed: Failed = lambda _, __: None) -> Verdict:
    """Every item. `failed` gets the smallest trial of a task that fails."""
    items: list[Item] = []
    if how.task is None:
        items += [_answer(submission, each, how) for each in submission.lab.questions]
    items += _tasks(submission, how, failed)
    digest = "" if submission.policy is None else _shape(submission)
    return Verdict(
        str(submission.folder), submission.lab.number, submission.student, tuple(items), digest
    )


def _shape(submission: Submission) -> str:
    return "" if submission.untouched or submission.policy is None else shape(submission.policy)


# --- Answers ---------------------------------------------------------------------------------


def _answer(submission: Submission, question: Question, how: How) -> Item:
    title = f"{'prediction' if question.kind == 'prediction' else 'question'} {question.id}"

    def item(state: State, text: str = "") -> Item:
        got = question.points if state == "holds" else 0
        return Item(question.id, title, state, got, question.points, text)

    try:
        given = submission.number(question)
    except ValueError:
        written = submission.answers[question.id][:40]
        return item("fails", f"{written!r} is no number; write one without its unit")
    if given is None:
        return item("open", f"write your number behind '{question.id} =' in {ANSWERS}")
    if how.secret is not None and submission.is_example:
        return item("fails", "the texts show this student's numbers; student = your own name")
    right = question.right(submission.dice)
    if question.kind == "prediction":
        return item("holds", f"you wrote {given:g}; measured: {right:.4g} {question.unit}")
    if abs(given - right) <= question.tolerance * abs(right) + 1e-12:
        return item("holds")
    return item("fails", f"{given:g} {question.unit} is not right; {question.advice}")


# --- Tasks -----------------------------------------------------------------------------------


def _tasks(submission: Submission, how: How, failed: Failed) -> list[Item]:
    lab = submission.lab
    wanted = [each for each in lab.tasks if how.task in (None, each.id)]
    if not wanted:
        known = ", ".join(each.id for each in lab.tasks)
        raise UserError(f"lab {lab.number} has no task {how.task!r}", hint=f"its tasks: {known}")
    if submission.policy is None:
        hint = f"{POLICY} is missing; lab learn start {lab.number} in another folder makes one"
        return [_open(each, hint) for each in wanted]
    if submission.untouched:
        hint = f"{POLICY} is as it was handed out: write its method {lab.hole}, then check again"
        return [_open(each, hint) for each in wanted]
    policy = Policy(submission.policy, lab.policy, lab.kind)
    with Crew(policy, shut_in=how.shut_in, prints=how.prints) as crew:
        if (why := _wavers(lab, wanted[0], how, crew)) is not None:
            return [_item(each, "fails", why) for each in wanted]
        items = [_task(submission, each, how, crew, failed) for each in wanted]
    return [_with_needed(task, item, items) for task, item in zip(wanted, items, strict=True)]


def _with_needed(task: Task, item: Item, items: Sequence[Item]) -> Item:
    """Who does nothing, or repeats everything, passes some tasks: they count with another."""
    needed = next((each for each in items if each.id == task.needs), None)
    if needed is None or needed.state == "holds" or item.state != "holds":
        return item
    return _item(task, "fails", f"{task.because}: it counts once {needed.title} holds")


def _open(task: Task, text: str) -> Item:
    return _item(task, "open", text)


def _item(task: Task, state: State, text: str = "", seed: int | None = None) -> Item:
    got = task.points if state == "holds" else 0
    title = f"the policy {task.title}"
    return Item(task.id, title, state, got, task.points, text, seed, task=task.id)


def _wavers(lab: Lab, task: Task, how: How, crew: Crew) -> str | None:
    """A policy that decides otherwise the second time could not be judged."""
    seed = task.public[0] if how.seed is None else how.seed
    first, second = (_trial(lab, task, seed, how, crew) for _ in range(2))
    if first.error is not None or first.same_as(second):
        return None
    return (
        f"two runs with the same seed ({seed}) differ: the policy uses a clock, randomness, or "
        "something left over from the run before; decide by what the hooks are given"
    )


def _seeds(task: Task, lab: Lab, how: How) -> list[tuple[int, str]]:
    if how.seed is not None:
        return [(how.seed, "seed")]
    public = [(seed, "public seed") for seed in task.public]
    if how.secret is None:
        return public
    hidden = seeds.hidden(how.secret, lab.number, task.id, task.hidden)
    return [*public, *((seed, "hidden seed") for seed in hidden)]


def _task(submission: Submission, task: Task, how: How, crew: Crew, failed: Failed) -> Item:
    lab = submission.lab
    for seed, kind in _seeds(task, lab, how):
        found = _trial(lab, task, seed, how, crew)
        wrong = _wrong(task, found)
        if not wrong:
            continue
        smallest, size = _smallest(lab, task, found, wrong[0], crew)
        failed(task, smallest)
        text = f"{kind} {seed}: {'; '.join(_wrong(task, smallest)[:2])}"
        if kind == "hidden seed":
            text += "; the public seeds pass: does the policy rest on what they have in common?"
        replay = ["lab", "learn", "check", str(submission.folder)]
        replay += ["--task", task.id, "--seed", str(seed)]
        if size is not None:
            replay += ["--size", f"{size // 1024}KiB"]
        item = _item(task, "fails", text, seed)
        return dataclasses.replace(item, replay=shlex.join(replay))
    return _item(task, "holds")


def _trial(lab: Lab, task: Task, seed: int, how: How, crew: Crew) -> Ran:
    written = task.build(seeds.of_seed(task.id, seed))
    if how.size_bytes is not None:
        written = _sized(written, how.size_bytes)
    return lab.run(written, seed, crew)


def _wrong(task: Task, found: Ran) -> list[str]:
    failure = found.failure()
    if found.error is not None and failure is not None:
        return [failure]
    judged = task.judge(found)
    return judged if failure is None else [*judged, failure]


# --- Smaller ---------------------------------------------------------------------------------


def _sized(written: Written, size_bytes: int) -> Written:
    if "workload" not in written:
        raise UserError("--size: this lab sends no workload", hint="leave it out")
    return {**written, "workload": {**written["workload"], "bytes": f"{size_bytes}B"}}


def _smallest(lab: Lab, task: Task, found: Ran, wrong: str, crew: Crew) -> tuple[Ran, int | None]:
    """The same failure with less to send, and how much that is; None: as much as before."""
    workload: Mapping[str, Any] = found.written.get("workload", {})
    if "bytes" not in workload or "message" not in workload or found.error is not None:
        return found, None
    size, least = (units.parse_bytes(str(workload[key])) for key in ("bytes", "message"))
    best: int | None = None
    for _ in range(_MOST_SMALLER):
        size = max(size // 2 // least, 1) * least
        smaller = lab.run(_sized(found.written, size), found.seed, crew)
        again = _wrong(task, smaller)
        if not again or _manner(again) != _manner([wrong]):
            break
        found, best = smaller, size
        if size == least:
            break
    return found, best


def _manner(wrong: Sequence[str]) -> str:
    """What kind of failure: its words without numbers."""
    return "".join(each for each in wrong[0].partition(":")[0] if not each.isdigit())
