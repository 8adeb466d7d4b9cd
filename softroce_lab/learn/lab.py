# SPDX-License-Identifier: GPL-2.0-or-later
"""What a lab is: questions, tasks for a policy, and texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

from softroce_lab.errors import LabError
from softroce_lab.learn import picture, trial
from softroce_lab.learn.crew import Crew
from softroce_lab.learn.seeds import Dice
from softroce_lab.learn.trial import Written

Judge: TypeAlias = Callable[[Any], list[str]]
"""What does not hold of a run, the most important first; [] where all does."""


class Ran(Protocol):
    """A submission's run of one task with one seed."""

    @property
    def written(self) -> Written:
        """The experiment."""

    @property
    def seed(self) -> int:
        """Of it."""

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

    A prediction is worth its points whatever it is: nobody knows before. Others are compared with
    what is measured or computed for the student's variant, within `tolerance`.
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
    """What a policy has to do, with any seed."""

    id: str
    title: str  # continues "the policy ..."
    build: Callable[[Dice], Written]
    judge: Judge
    points: int = 4
    public: tuple[int, ...] = (1, 2)
    hidden: int = 3  # seeds that grade adds
    needs: str = ""  # a task that has to hold, too,
    because: str = "nothing is lost in it"  # who does nothing, or everything, passes this one


@dataclasses.dataclass(frozen=True, slots=True)
class Lab:
    """One lab of the series."""

    number: int
    slug: str
    title: str
    minutes: int
    experiment: Callable[[Dice], Written]  # of a student's variant
    values: Callable[[Dice], Mapping[str, str]]  # that its text names
    questions: tuple[Question, ...]
    tasks: tuple[Task, ...]
    policy: str  # the class in `policy.py`
    hole: str  # the method that a student writes
    kind: str = "transport"  # who asks the policy what: of crew.Policy
    run: Callable[[Written, int, Crew], Ran] = trial.of_policy
    read: Callable[[Written], object] = trial.experiment  # UserError for what is no experiment
    draw: Callable[[Any, str], picture.Picture | None] = picture.of
    command: str = "lab run experiment.yaml"

    @property
    def points(self) -> int:
        """Of all questions and tasks."""
        questions = sum(each.points for each in self.questions)
        return questions + sum(each.points for each in self.tasks)
