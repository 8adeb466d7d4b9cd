# SPDX-License-Identifier: GPL-2.0-or-later
"""Judges a submission: its answers against what is measured, its policy by the lab's tasks.

All runs are on the virtual clock, so a grade is the same on every machine. A task passes if it
passes with each seed.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.learn.folder import ANSWERS, Submission, shape
from softroce_lab.learn.isolation import POLICY, Policy, Workers
from softroce_lab.learn.lab import Lab, Question, Ran, Task, hidden_seeds, task_dice
from softroce_lab.learn.trial import Written

State: TypeAlias = Literal["holds", "fails", "open"]

_HALVINGS = 3  # of a failed run's workload


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


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """A submission, judged."""

    folder: str
    lab: int
    student: str
    items: tuple[Item, ...]
    shape: str = ""  # of its policy: two programs of the same shape are the same program

    @property
    def points(self) -> int:
        """The points that were earned."""
        return sum(item.points for item in self.items)

    @property
    def most(self) -> int:
        """The points that can be earned."""
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
class Options:
    """How strictly to judge, and which part."""

    isolated: bool  # in bubblewrap
    secret: bytes | None = None  # for hidden seeds
    task: str | None = None  # judge this task alone,
    seed: int | None = None  # with this seed alone,
    size_bytes: int | None = None  # and so many bytes to send
    prints: bool = False  # show what the policy prints


OnFailure: TypeAlias = Callable[[Task, Ran], None]


def judge(
    submission: Submission, options: Options, on_failure: OnFailure = lambda _, __: None
) -> Verdict:
    """Judge every item. `on_failure` gets the smallest run of a task that fails."""
    lab, policy = submission.lab, submission.policy
    items: list[Item] = []
    if options.task is None:
        items += [_judge_answer(submission, question, options) for question in lab.questions]
    items += _judge_tasks(submission, options, on_failure)
    program = "" if policy is None or submission.untouched else shape(policy)
    return Verdict(str(submission.folder), lab.number, submission.student, tuple(items), program)


# --- Answers ---------------------------------------------------------------------------------


def _judge_answer(submission: Submission, question: Question, options: Options) -> Item:
    title = f"{'prediction' if question.kind == 'prediction' else 'question'} {question.id}"

    def item(state: State, text: str = "") -> Item:
        points = question.points if state == "holds" else 0
        return Item(question.id, title, state, points, question.points, text)

    try:
        given = submission.number(question)
    except ValueError:
        written = submission.answers[question.id][:40]
        return item("fails", f"{written!r} is no number; write one without its unit")
    if given is None:
        return item("open", f"write your number behind '{question.id} =' in {ANSWERS}")
    if options.secret is not None and submission.is_example:
        return item("fails", "the texts show this student's numbers; student = your own name")
    right = question.right(submission.dice)
    if question.kind == "prediction":
        return item("holds", f"you wrote {given:g}; measured: {right:.4g} {question.unit}")
    if abs(given - right) <= question.tolerance * abs(right) + 1e-12:
        return item("holds")
    return item("fails", f"{given:g} {question.unit} is not right; {question.advice}")


# --- Tasks -----------------------------------------------------------------------------------


def _judge_tasks(submission: Submission, options: Options, on_failure: OnFailure) -> list[Item]:
    lab = submission.lab
    tasks = [task for task in lab.tasks if options.task in (None, task.id)]
    if not tasks and options.task is not None:
        known = ", ".join(task.id for task in lab.tasks)
        hint = f"its tasks: {known}" if known else "it has questions only: leave out --task"
        raise UserError(f"lab {lab.number} has no task {options.task!r}", hint=hint)
    if not tasks:
        return []
    if submission.policy is None:
        hint = f"{POLICY} is missing; lab learn start {lab.number} in another folder makes one"
        return [_item(task, "open", hint) for task in tasks]
    if submission.untouched:
        hint = f"{POLICY} is as it was handed out: write its method {lab.hole}, then check again"
        return [_item(task, "open", hint) for task in tasks]
    policy = Policy(submission.policy, lab.policy, lab.kind)
    with Workers(policy, isolated=options.isolated, prints=options.prints) as workers:
        if (why := _find_chance(lab, tasks[0], options, workers)) is not None:
            return [_item(task, "fails", why) for task in tasks]
        items = [_judge_task(submission, task, options, workers, on_failure) for task in tasks]
    return [_require(task, item, items) for task, item in zip(tasks, items, strict=True)]


def _require(task: Task, item: Item, items: Sequence[Item]) -> Item:
    """Withhold points until the prerequisite task passes: a policy may pass this one idly."""
    needed = next((other for other in items if other.id == task.needs), None)
    if needed is None or needed.state == "holds" or item.state != "holds":
        return item
    return _item(task, "fails", f"{task.because}: it counts once {needed.title} holds")


def _item(
    task: Task, state: State, text: str = "", seed: int | None = None, again: str = ""
) -> Item:
    points = task.points if state == "holds" else 0
    title = f"the policy {task.title}"
    return Item(task.id, title, state, points, task.points, text, seed, again, task.id)


def _find_chance(lab: Lab, task: Task, options: Options, workers: Workers) -> str | None:
    """A policy that decides differently the second time cannot be judged."""
    seed = task.public[0] if options.seed is None else options.seed
    first, second = (_run(lab, task, seed, options, workers) for _ in range(2))
    if first.error is not None or first.same_as(second):
        return None
    return (
        f"two runs with the same seed ({seed}) differ: the policy uses a clock, randomness, or "
        "something left over from the run before; decide by what the hooks are given"
    )


def _choose_seeds(task: Task, lab: Lab, options: Options) -> list[tuple[int, str]]:
    if options.seed is not None:
        return [(options.seed, "seed")]
    public = [(seed, "public seed") for seed in task.public]
    if options.secret is None:
        return public
    hidden = hidden_seeds(options.secret, lab.number, task.id, task.hidden)
    return [*public, *((seed, "hidden seed") for seed in hidden)]


def _judge_task(
    submission: Submission, task: Task, options: Options, workers: Workers, on_failure: OnFailure
) -> Item:
    lab = submission.lab
    for seed, kind in _choose_seeds(task, lab, options):
        run = _run(lab, task, seed, options, workers)
        problems = _list_problems(task, run)
        if not problems:
            continue
        run, problems, size = _shrink(lab, task, run, problems, workers)
        on_failure(task, run)
        text = f"{kind} {seed}: {'; '.join(problems[:2])}"
        if kind == "hidden seed":
            text += "; the public seeds pass: does the policy rest on what they have in common?"
        again = ["lab", "learn", "check", str(submission.folder)]
        again += ["--task", task.id, "--seed", str(seed)]
        if size is not None:
            again += ["--size", f"{size // 1024}KiB"]
        return _item(task, "fails", text, seed, shlex.join(again))
    return _item(task, "holds")


def _run(lab: Lab, task: Task, seed: int, options: Options, workers: Workers) -> Ran:
    written = task.build(task_dice(task.id, seed))
    if options.size_bytes is not None:
        written = _resize(written, options.size_bytes)
    return lab.run(written, seed, workers)


def _list_problems(task: Task, run: Ran) -> list[str]:
    failure = run.failure()
    if run.error is not None and failure is not None:
        return [failure]
    judged = task.judge(run)
    return judged if failure is None else [*judged, failure]


def _resize(written: Written, size_bytes: int) -> Written:
    if "workload" not in written:
        raise UserError("--size: this lab sends no workload", hint="leave it out")
    return {**written, "workload": {**written["workload"], "bytes": f"{size_bytes}B"}}


def _shrink(
    lab: Lab, task: Task, run: Ran, problems: list[str], workers: Workers
) -> tuple[Ran, list[str], int | None]:
    """The same failure with fewer bytes to send, and how many; None: as many as before."""
    workload: Mapping[str, Any] = run.written.get("workload", {})
    if "bytes" not in workload or "message" not in workload or run.error is not None:
        return run, problems, None
    size, least = (units.parse_bytes(str(workload[key])) for key in ("bytes", "message"))
    best: int | None = None
    for _ in range(_HALVINGS):
        size = max(size // 2 // least, 1) * least
        smaller = lab.run(_resize(run.written, size), run.seed, workers)
        again = _list_problems(task, smaller)
        if not again or _kind(again[0]) != _kind(problems[0]):
            break
        run, problems, best = smaller, again, size
        if size == least:
            break
    return run, problems, best


def _kind(problem: str) -> str:
    """The words of a problem without its numbers."""
    return "".join(char for char in problem.partition(":")[0] if not char.isdigit())
