# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab learn`: what students and teachers type."""

import csv
import io
import json
import os
import re
import signal
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from typer.testing import CliRunner

from softroce_lab.cli import app as cli
from softroce_lab.cli import typed
from softroce_lab.learn import grading, isolation, judge
from softroce_lab.learn.grading import COLUMNS
from softroce_lab.learn.judge import Item, Options, Verdict
from tests.learn import submissions
from tests.learn.submissions import needs_bubblewrap


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
    assert "then: lab learn check mine" in lab("start", 1, "mine", "--student", "ada").stdout
    assert "nothing is overwritten" in lab("start", 1, "mine").output
    assert "mine: started" in lab().stdout
    checked = lab("check", "mine")
    assert checked.exit_code == 1
    assert "Next: prediction p1: write your number behind 'p1 ='" in checked.stdout
    assert "mine: 0 of 20 points" in lab().stdout


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
    for number in (1, 7):
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


def test_options_without_an_effect_are_refused(lab):
    submissions.laid_out(1, Path("mine"), submissions.solution(1), "ada")
    for words in (("--seed", 7), ("--size", "1MiB"), ("--task", "nothing")):
        assert lab("check", "mine", *words).exit_code != 0


def test_grade_needs_a_secret(lab):
    submissions.laid_out(1, Path("mine"))
    assert "no secret" in lab("grade", "mine").output or not submissions.ISOLATED


def test_where_bubblewrap_is_missing_policies_are_refused(lab, secret, monkeypatch):
    """Unless they are one's own: --trust runs them all the same, but grades nobody."""
    monkeypatch.setattr(isolation, "why_not_isolated", lambda: "bubblewrap is not installed")
    submissions.laid_out(7, Path("mine"), submissions.solution(7), "ada")
    league = ("league", "mine/policy.py:Failover")
    failover = ("failover", "mine/experiment.yaml", "mine/policy.py:Failover")
    for words in (("check", "mine"), ("grade", "mine", "--secret", secret), league, failover):
        refused = lab(*words)
        assert refused.exit_code == 3
        assert "apt install bubblewrap" in refused.output
        assert ("--trust" in refused.output) == (words[0] != "grade")
    assert lab(*failover, "--trust").exit_code == 0
    assert lab("grade", "mine", "--secret", secret, "--trust").exit_code == 2


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


def test_grades_of_verdicts():
    """What a table, a document and Gradescope make of them."""
    prediction = Item("p1", "prediction p1", "open", 0, 1, "write your number")
    task = Item("tail", "the policy a", "fails", 2, 5, "seed 2:\n  lost", task="tail", replay="x")
    verdicts = [Verdict("a", 1, "ada", (prediction, task), "s"), Verdict("b", 1, "Ada", ())]
    verdicts.append(Verdict("c", 1, "=1+1", (prediction,), "s"))
    first, second, third = grading.rows(verdicts)
    assert (first["first_failure"], first["replay"]) == ("the policy a: seed 2: lost", "x")
    assert [row["same_student_as"] for row in (first, second, third)] == ["b", "a", ""]
    assert [row["same_program_as"] for row in (first, second, third)] == ["c", "", "a"]
    assert (third["first_failure"][:13], third["replay"]) == ("prediction p1", "")
    assert "\nc,'=1+1,1," in grading.as_csv(verdicts)
    document = grading.as_gradescope(verdicts[0])
    assert document["score"] == 2
    assert [(test["score"], test["max_score"]) for test in document["tests"]] == [(0, 1), (2, 5)]
    assert grading.find_twins(verdicts[:1] * 2) == ({}, {})


def grade_or_die(path, _):
    """A judge, which is killed for one folder."""
    if path.endswith("bad"):
        os.kill(os.getpid(), signal.SIGKILL)
    return Verdict(path, 1, "ada", ())


def test_a_judge_that_fails_is_of_one_submission(tmp_path, monkeypatch):
    folders = [Path("a"), Path("bad"), Path("b"), Path("c")]
    verdicts = grading.grade(folders, Options(isolated=True), 2, by=grade_or_die)
    assert [verdict.folder for verdict in verdicts] == ["a", "bad", "b", "c"]
    ended = ["not decided, the judge was ended" in verdict.next_step for verdict in verdicts]
    assert ended == [False, True, False, False]
    (row,) = grading.rows([grading.grade_one(str(tmp_path), Options(isolated=True))])
    assert "has no answers.txt" in row["first_failure"]
    assert "hint" not in row["first_failure"]
    monkeypatch.setattr(judge, "judge", lambda *_: 1 / 0)
    submissions.laid_out(1, tmp_path / "lab")
    verdict = grading.grade_one(str(tmp_path / "lab"), Options(isolated=True))
    assert (verdict.points, verdict.most) == (0, 0)
    assert "the judge itself failed" in verdict.next_step


def test_a_folder_of_submissions_is_no_submission(lab, secret, tmp_path):
    for name in ("ada", "grace"):
        submissions.laid_out(1, tmp_path / "subs" / name)
    found = lab("grade", "subs", "--secret", secret)
    assert found.exit_code != 0
    assert "a folder of 2 submissions" in found.output
    assert "lab learn grade subs/*" in found.output
    grading.check_folders([tmp_path / "subs" / "ada", tmp_path / "subs"])
    grading.check_folders([tmp_path])
