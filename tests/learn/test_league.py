# SPDX-License-Identifier: GPL-2.0-or-later
"""The league: entrants beside the lab's transports, on fabrics that follow from a secret."""

import re

import pytest

from softroce_lab.errors import UserError
from softroce_lab.learn import league, trial
from softroce_lab.learn.labs import experiments
from softroce_lab.paths import PROJECT_ROOT
from tests.learn import submissions


@pytest.fixture
def files(tmp_path):
    """The model solutions of labs 2 and 3, and one that never sends anything again."""
    (tmp_path / "two.py").write_text(submissions.solution(2))
    (tmp_path / "three.py").write_text(submissions.solution(3))
    nothing = re.sub(r"return \[Retransmit.*", "return []", submissions.solution(3))
    (tmp_path / "nothing.py").write_text(nothing)
    return tmp_path


def test_fabrics_follow_from_the_secret():
    public, one, other = (league.arenas(each) for each in (None, b"one", b"other"))
    assert league.arenas(b"one") == one
    assert len(public) == len(one) == len(league.KINDS) * league.ROUNDS
    assert {seed for _, seed, _ in one}.isdisjoint(seed for _, seed, _ in other)
    assert {seed for _, seed, _ in public} == set(range(1, league.ROUNDS + 1))
    for _, _, written in (*public, *one):
        trial.experiment(written)


def test_a_shorter_time_is_a_better_place(files, monkeypatch):
    """On one lossy fabric: who sends nothing again fails, and comes last."""
    lossy = experiments.line("20us", faults=[experiments.loss("1%")], total="512KiB")
    monkeypatch.setattr(league, "arenas", lambda _: [("lossy", 1, lossy)])
    entrants = [
        league.read_entrant(f"{files}/{name}.py:{kind}")
        for name, kind in (("three", "SackSender"), ("nothing", "SackSender"))
    ]
    found = league.rank(entrants, None, isolated=submissions.ISOLATED)
    names = [each.name for each in found]
    assert names[0] == "oracle"
    assert found[0].over_oracle == 1
    assert names[-1].endswith("nothing.py:SackSender")
    assert [each.failed for each in found] == [0] * (len(found) - 1) + [1]
    ratios = [each.over_oracle for each in found]
    assert ratios == sorted(ratios)
    mine = next(each for each in found if each.name.endswith("three.py:SackSender"))
    assert 1 < mine.over_oracle < found[-1].over_oracle


def test_the_table_of_the_page(files):
    text = (PROJECT_ROOT / "docs/tutorial/course.md").read_text()
    rows = re.findall(r"^\| \d \| (\S.*?) \| (\d\.\d+) \| (.*?) ?\|$", text, re.M)
    names = {"lab 2's": f"{files}/two.py:Expecting", "lab 3's": f"{files}/three.py:SackSender"}
    entrants = [league.read_entrant(each) for each in names.values()]
    found = league.rank(entrants, None, isolated=submissions.ISOLATED)
    shown = [(names.get(name, name), ratio) for name, ratio, _ in rows]
    assert [(each.name, f"{each.over_oracle:.3f}") for each in found] == shown
    worst = ["" if each.name == league.BOUND else each.worst for each in found]
    assert worst == [where for _, _, where in rows]


def test_an_entrant_that_is_none_is_refused_before_any_run(files):
    (files / "broken.py").write_text("class (")
    for text, why in (
        ("mine.py", "names no class"), ("nowhere.py:Mine", "is not there"),
        (f"{files}/two.py:Nope", "has no class Nope"), (f"{files}/broken.py:Mine", "is no Python"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=why):
            league.read_entrant(text)
