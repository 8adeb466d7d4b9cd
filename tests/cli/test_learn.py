# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab learn`: what students and teachers type."""

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from typer.testing import CliRunner

from softroce_lab.cli import app as cli
from softroce_lab.cli import typed
from softroce_lab.learn import crew, grading
from softroce_lab.learn.grading import COLUMNS
from softroce_lab.learn.judge import How, Item, Verdict
from tests.learn import submissions

needs_bubblewrap = pytest.mark.skipif(not submissions.SHUT_IN, reason=str(crew.lacks_bubblewrap()))


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SOFTROCE_LAB_SECRET", raising=False)
    return lambda *words: CliRunner().invoke(cli.app, ["learn", *map(str, words)])


@pytest.fixture
def secret(tmp_path):
    (tmp_path / "secret").write_text("of this course\n")
    return tmp_path / "secret"


def test_the_list_has_the_state_of_folders(lab, tmp_path):
    assert "not started" in lab().stdout
    assert lab("start", 1, "mine", "--student", "ada").exit_code == 0
    assert "mine: started" in lab().stdout
    assert lab("check", "mine").exit_code == 1
    assert "mine: 0 of 20 points" in lab().stdout


def test_start_says_what_to_do_and_overwrites_nothing(lab):
    done = lab("start", 3, "mine", "--student", "ada")
    assert "lab learn check mine" in done.stdout
    again = lab("start", 3, "mine")
    assert again.exit_code != 0
    assert "nothing is overwritten" in again.output


def test_start_without_a_folder_says_what_to_type(lab, tmp_path):
    found = lab("start", 7)
    assert found.exit_code == 2
    assert "lab learn start 7 lab7" in found.output
    assert "A NIC dies" in found.output
    assert "no lab 9" in lab("start", 9).output
    assert list(tmp_path.iterdir()) == []


def test_texts_name_the_command_as_it_was_typed(lab, tmp_path, monkeypatch):
    """README's command is ./lab, and a folder's commands are run in that folder."""
    monkeypatch.setenv(typed.VARIABLE, "./lab")
    monkeypatch.setattr(typed.shutil, "which", lambda _: None)
    for number in (1, 6, 7):
        folder = tmp_path / f"labs/{number}"
        done = lab("start", number, f"labs/{number}", "--student", "ada")
        assert f"then: ./lab learn check labs/{number}" in done.stdout
        for name in ("README.md", "policy.py", "answers.txt", "experiment.yaml"):
            text = (folder / name).read_text()
            assert not re.search(r"(?<![\w./])lab (run|learn|model)\b", text), name
        assert "$ ../../lab " in (folder / "README.md").read_text()
        assert "Check it: ../../lab learn check ." in (folder / "policy.py").read_text()
        found = lab("check", f"labs/{number}").stdout
        assert "policy.py is as it was handed out" in found
    assert "; ./lab learn start 7 in another folder" in _without_policy(lab, folder)


def _without_policy(lab, folder):
    (folder / "policy.py").unlink()
    return lab("check", str(folder)).stdout


def test_a_hand_out_is_told_what_to_do(lab):
    lab("start", 1, "mine", "--student", "ada")
    found = lab("check", "mine")
    assert found.exit_code == 1
    assert "Next: prediction p1: write your number behind 'p1 ='" in found.stdout


def test_check_draws_what_fails(lab, tmp_path):
    right = submissions.solution(1)
    wrong = submissions.changed(right, ("arange(first_missing, sent)", "arange(0, sent)"))
    submissions.laid_out(1, tmp_path / "mine", wrong)
    found = lab("check", "mine", "--task", "tail", "--seed", 7)
    assert found.exit_code == 1
    assert "again: lab learn check mine --task tail --seed 7" in found.stdout
    picture = ET.parse(tmp_path / "mine/failed-tail.svg").getroot()  # noqa: S314
    names = {child.tag.partition("}")[2]: child.text for child in picture}
    assert names["title"].startswith("tail, seed 7")
    assert "lost at" in names["desc"]


@pytest.mark.parametrize(
    "words",
    [("--seed", 7), ("--size", "1MiB"), ("--task", "nothing")],
)
def test_check_refuses_what_has_no_effect(lab, words):
    lab("start", 1, "mine", "--student", "ada")
    Path("mine/policy.py").write_text(submissions.solution(1))
    assert lab("check", "mine", *words).exit_code != 0


def test_grade_needs_a_secret(lab):
    lab("start", 1, "mine", "--student", "ada")
    found = lab("grade", "mine", "--trust")
    assert found.exit_code != 0
    assert "no secret" in found.output


def test_grade_refuses_where_it_cannot_shut_in(lab, secret, monkeypatch):
    monkeypatch.setattr(crew, "lacks_bubblewrap", lambda: "bubblewrap is not installed")
    lab("start", 1, "mine", "--student", "ada")
    found = lab("grade", "mine", "--secret", secret)
    assert found.exit_code != 0
    assert "--trust" in found.output


@needs_bubblewrap
def test_grades_as_tables_and_documents(lab, secret, tmp_path):
    right = submissions.solution(1)
    submissions.laid_out(1, tmp_path / "a", right, "ada", answers=True)
    submissions.laid_out(1, tmp_path / "b", right + "# mine\n", "grace", answers=True)
    submissions.laid_out(1, tmp_path / "c", None, "edsger")
    (tmp_path / "d").mkdir()
    found = lab(
        "grade", "a", "b", "c", "d", "--secret", secret, "--csv", "--junit", "junit.xml", "-q"
    )
    assert found.exit_code == 0, found.output
    rows = list(csv.DictReader(io.StringIO(found.stdout)))
    assert tuple(rows[0]) == COLUMNS
    assert [row["points"] for row in rows] == ["20", "20", "0", "0"]
    assert [row["same_program_as"] for row in rows] == ["b", "a", "", ""]
    assert "has no answers.txt" in rows[3]["first_failure"]
    suites = ET.parse(tmp_path / "junit.xml").getroot()  # noqa: S314
    assert [suite.get("failures") for suite in suites] == ["0", "0", "12", "1"]
    one = lab("grade", "a", "--secret", secret, "--gradescope", "-q")
    document = json.loads(one.stdout)
    assert document["score"] == 20 == sum(test["max_score"] for test in document["tests"])
    assert lab("grade", "a", "b", "--secret", secret, "--gradescope").exit_code != 0
    assert lab("grade", "a", "--secret", secret, "--json", "--csv").exit_code != 0


def test_a_student_s_name_is_no_formula():
    assert grading._no_formula("=1+1") == "'=1+1"
    assert grading._no_formula("ada") == "ada"


def test_two_of_one_student_are_named(tmp_path):
    verdicts = [Verdict(name, 1, student, ()) for name, student in (("a", "ada"), ("b", "Ada"))]
    assert [row["same_student_as"] for row in grading.rows(verdicts)] == ["b", "a"]


def test_a_teacher_is_told_of_the_policy_first_and_how_to_see_it():
    prediction = Item("p1", "prediction p1", "open", 0, 1, "write your number")
    task = Item("tail", "the policy a", "fails", 0, 5, "seed 2:\n  lost", task="tail", replay="x")
    verdict = Verdict("a", 1, "ada", (prediction, task))
    (row,) = grading.rows([verdict])
    assert (row["first_failure"], row["replay"]) == ("the policy a: seed 2: lost", "x")
    (row,) = grading.rows([Verdict("a", 1, "ada", (prediction,))])
    assert (row["first_failure"][:13], row["replay"]) == ("prediction p1", "")


def test_gradescope_has_the_points_that_were_earned():
    items = Item("p1", "prediction p1", "holds", 1, 1), Item("tail", "a", "fails", 2, 5, "lost")
    document = grading.as_gradescope(Verdict("a", 1, "ada", items))
    assert document["score"] == 3
    assert [(each["score"], each["max_score"]) for each in document["tests"]] == [(1, 1), (2, 5)]


def test_an_empty_folder_is_one_line_in_the_table(tmp_path):
    (row,) = grading.rows([grading.one(str(tmp_path), How(shut_in=True))])
    assert "has no answers.txt" in row["first_failure"]
    assert "\n" not in row["first_failure"]
    assert "hint" not in row["first_failure"]


def test_a_folder_of_submissions_is_no_submission(lab, secret, tmp_path):
    for name in ("ada", "grace"):
        submissions.laid_out(1, tmp_path / "subs" / name)
    found = lab("grade", "subs", "--secret", secret, "--trust")
    assert found.exit_code != 0
    assert "a folder of 2 submissions" in found.output
    assert "lab learn grade subs/*" in found.output
    grading.check_folders([tmp_path / "subs" / "ada", tmp_path / "subs"])
    grading.check_folders([tmp_path])
