# SPDX-License-Identifier: GPL-2.0-or-later
"""Lab 8: its claims hold for every student, and a wrong condition gives a wrong answer."""

import pytest

from softroce_lab.errors import UserError
from softroce_lab.learn import folder
from softroce_lab.learn.lab import variant
from softroce_lab.learn.labs import parity
from tests.learn import submissions

STUDENTS = ("example", "ada", "grace", "edsger")
OTHERS = sorted({*parity.CONDITIONS} - {parity.PROTECTS})
SLOWER = 1.02
"""Of an incast that a condition protects, at most; as the question says."""


def always_with(*conditions):
    return {**parity.ALWAYS, **dict.fromkeys(conditions, True)}


@pytest.mark.parametrize("student", STUDENTS)
def test_parity_shortens_the_ring_and_lengthens_the_incast(student):
    dice = variant(parity.LAB.number, student)
    without, auto = (
        parity.ring_figure("makespan_ns", options)(dice)
        for options in (parity.WITHOUT, parity.AUTO)
    )
    assert auto < 0.9 * without
    without, always = (
        parity.incast_figure("makespan_ns", options)(dice)
        for options in (parity.WITHOUT, parity.ALWAYS)
    )
    assert always > 1.08 * without


@pytest.mark.parametrize("student", STUDENTS)
def test_one_condition_protects_the_incast(student):
    dice = variant(parity.LAB.number, student)
    without = parity.incast_figure("makespan_ns", parity.WITHOUT)(dice)
    protecting = [
        condition
        for condition in parity.CONDITIONS
        if parity.incast_figure("makespan_ns", always_with(condition))(dice) <= SLOWER * without
    ]
    assert protecting == [parity.PROTECTS]


def judge_q5(where, given):
    submissions.answer(where, parity.LAB, q5=given)
    verdict = submissions.judged(where, secret=submissions.SECRET)
    wrong = [item.id for item in verdict.items if item.state != "holds"]
    assert verdict.points == verdict.most - 3 * len(wrong)
    return wrong


@pytest.mark.parametrize(
    "options",
    [parity.WITHOUT, parity.AUTO, parity.ALWAYS, *map(always_with, OTHERS)],
    ids=["without", "auto", "always", *OTHERS],
)
def test_the_figure_of_another_run_is_a_wrong_answer(options, tmp_path):
    where = submissions.laid_out(8, tmp_path / "lab", student="ada")
    marked = parity.incast_figure("marked", options)(folder.read(where).dice)
    assert judge_q5(where, f"{marked:.0f}") == ["q5"]


def test_the_figure_of_another_student_is_a_wrong_answer(tmp_path):
    where = submissions.laid_out(8, tmp_path / "lab", student="ada")
    marked = parity.incast_figure("marked", always_with(parity.PROTECTS))
    assert judge_q5(where, f"{marked(variant(8, 'grace')):.0f}") == ["q5"]
    assert judge_q5(where, f"{marked(variant(8, 'ada')):.0f}") == []


def test_the_lab_has_no_policy(tmp_path):
    """A policy that somebody hands in all the same is not read."""
    where = submissions.laid_out(8, tmp_path / "lab", student="ada")
    assert not (where / folder.POLICY).exists()
    (where / folder.POLICY).write_text("import nonsense\n")
    assert folder.read(where).policy is None
    with pytest.raises(UserError, match="lab 8 has no task 'tail'") as refused:
        submissions.judged(where, task="tail")
    assert refused.value.hint == "it has questions only: leave out --task"
