# SPDX-License-Identifier: GPL-2.0-or-later
"""What a lab is: questions, tasks for a policy, texts, and the numbers that differ by student.

These numbers are hashes of names and not draws of a generator. Every machine and every version of
Python has the same.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

from softroce_lab.errors import LabError
from softroce_lab.learn import picture, trial
from softroce_lab.learn.isolation import Workers
from softroce_lab.learn.trial import Written

T = TypeVar("T")

_SEEDS = 1 << 31
_HIDDEN_FROM = 1 << 16  # public seeds are smaller


class Dice:
    """Choices that follow from a text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def number(self, name: str, least: int, most: int) -> int:
        """A number from `least` to `most`."""
        return least + _hash(f"{self._text}/{name}") % (most - least + 1)

    def one_of(self, name: str, choices: Sequence[T]) -> T:
        """One of the choices."""
        return choices[self.number(name, 0, len(choices) - 1)]


def variant(lab: int, student: str) -> Dice:
    """A student's variant of a lab: it decides the experiment and the right answers."""
    return Dice(f"softroce_lab learn {lab} {student.strip().casefold()}")


def task_dice(task: str, seed: int) -> Dice:
    """What a task draws from a seed."""
    return Dice(f"{task} {seed}")


def hidden_seeds(secret: bytes, lab: int, task: str, count: int) -> list[int]:
    """A teacher's seeds of a task. Nobody computes the secret from them."""
    texts = [f"lab {lab} task {task} seed {number}".encode() for number in range(count)]
    digests = [hmac.new(secret, text, hashlib.sha256).digest() for text in texts]
    numbers = [int.from_bytes(digest[:8], "big") for digest in digests]
    return [_HIDDEN_FROM + number % (_SEEDS - _HIDDEN_FROM) for number in numbers]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


class Ran(Protocol):
    """A submission's run of one task with one seed."""

    @property
    def written(self) -> Written:
        """The experiment."""

    @property
    def seed(self) -> int:
        """The seed of the run."""

    @property
    def error(self) -> LabError | None:
        """Why there was no run."""

    def failure(self) -> str | None:
        """Why it failed, in words for its author."""

    def same_as(self, other: Any) -> bool:
        """Whether both went alike."""


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A place for a number in `answers.txt`.

    A prediction has its points whatever it is. An answer is compared with the right one for the
    student's variant, within `tolerance`.
    """

    id: str
    text: str
    unit: str
    kind: Literal["prediction", "answer"]
    right: Callable[[Dice], float]
    tolerance: float = 0.02  # share of the right answer
    points: int = 1
    advice: str = ""  # where to look if it is wrong; it does not tell the answer


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """What a policy has to do, with any seed. `judge` lists what does not hold, the worst first."""

    id: str
    title: str  # continues "the policy ..."
    build: Callable[[Dice], Written]
    judge: Callable[[Any], list[str]]
    points: int = 4
    public: tuple[int, ...] = (1, 2)
    hidden: int = 3  # seeds that `grade` adds
    needs: str = ""  # this task counts only if that one holds
    because: str = "nothing is lost in it"  # the reason for `needs`


@dataclasses.dataclass(frozen=True, slots=True)
class Lab:
    """One lab of the series. A lab without tasks has questions only, and no `policy.py`."""

    number: int
    title: str
    minutes: int
    experiment: Callable[[Dice], Written]  # of a student's variant
    values: Callable[[Dice], Mapping[str, Any]]  # that the texts name in {{braces}}
    questions: tuple[Question, ...]
    tasks: tuple[Task, ...] = ()
    policy: str = ""  # the class in `policy.py`
    hole: str = ""  # the method that a student writes
    kind: str = "transport"  # of policies: see isolation.Policy
    run: Callable[[Written, int, Workers], Ran] = trial.run_policy
    read: Callable[[Written], object] = trial.experiment  # UserError for what is no experiment
    draw: Callable[[Any, str], picture.Picture | None] = picture.draw
    command: str = "lab run experiment.yaml"

    @property
    def points(self) -> int:
        """The points of all questions and tasks."""
        questions = sum(question.points for question in self.questions)
        return questions + sum(task.points for task in self.tasks)


def predict(id: str, text: str, unit: str, right: Callable[[Dice], float]) -> Question:  # noqa: A002
    """A prediction."""
    return Question(id, text, unit, "prediction", right)


def ask(
    id: str,  # noqa: A002
    text: str,
    unit: str,
    right: Callable[[Dice], float],
    advice: str,
    *,
    tolerance: float = 0.02,
    points: int = 1,
) -> Question:
    """A question with a right answer."""
    return Question(id, text, unit, "answer", right, tolerance, points, advice)
