# SPDX-License-Identifier: GPL-2.0-or-later
"""Lab 7's experiment: what it shows is what SHIFT does, and a submission cannot ask SHIFT."""

import json

import pytest
from typer.testing import CliRunner

from softroce_lab.cli import app as cli
from softroce_lab.errors import UserError
from softroce_lab.learn import folder
from softroce_lab.learn.failover import outcome, run, scene
from softroce_lab.learn.isolation import Policy, Workers
from softroce_lab.learn.lab import task_dice
from softroce_lab.learn.labs import failover
from tests.learn import submissions

REQUESTS = [
    "WRITE 1500",
    "WRITE_IMM 300",
    "WRITE 64",
    "SEND 64",
    "READ 100",
    "WRITE 2048",
    "SEND 1",
]
SCENES = [
    {"requests": REQUESTS, "dies": dies, "after": after}
    for dies in scene.DEATHS
    for after in (0, 2, 5)
]


@pytest.mark.parametrize("written", SCENES, ids=lambda each: f"{each['dies']}-{each['after']}")
def test_the_lab_s_rules_are_shift_s(written):
    """The machine that asks somebody, with SHIFT's answers, does what the machine of SHIFT does."""
    played = scene.read(written)
    own, asked = run.run(played), run.run(played, run.Shift())
    assert own.wrong == asked.wrong == []
    assert own.notified == asked.notified
    assert own.ended == asked.ended
    assert (own.consumed, own.resubmitted) == (asked.consumed, asked.resubmitted)
    assert own.detected_ns == asked.detected_ns


@pytest.mark.parametrize("task", failover.LAB.tasks, ids=lambda task: task.id)
def test_shift_passes_every_task_with_many_seeds(task):
    for seed in range(40):
        played = scene.read(task.build(task_dice(task.id, seed)))
        assert run.run(played, run.Shift()).wrong == []


def test_a_counter_tells_what_was_added_twice():
    played = scene.read({"requests": ["SEND 8", "ADD", "SEND 8"], "dies": "acknowledgements"})
    assert run.run(played, run.Shift()).added == 1
    twice = run.run(played, run.RepeatsAll())
    assert twice.added == 2
    assert "2 additions were executed, of 1 requests" in twice.wrong


def test_a_run_is_the_same_each_time():
    played = scene.read(SCENES[-1])
    assert run.run(played, run.RepeatsAll()).events == run.run(played, run.RepeatsAll()).events


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ([], "is no experiment of lab 7"),
        ({"requests": []}, "a list of 1 to 16"),
        ({"requests": ["WRITE 8"] * 17}, "a list of 1 to 16"),
        ({"requests": ["DELETE 8"]}, "'DELETE 8' is no request"),
        ({"requests": [""]}, "'' is no request"),
        ({"requests": ["WRITE 4096"]}, "wrong number of bytes"),
        ({"requests": ["ADD 16"]}, "wrong number of bytes"),
        ({"requests": ["SEND 0"]}, "wrong number of bytes"),
        ({"requests": ["SEND"], "dies": "today"}, "'today' is none of"),
        ({"requests": ["SEND"], "after": -1}, "after: a whole number from 0"),
        ({"requests": ["SEND"], "timeout": True}, "timeout: a whole number from 1"),
        ({"requests": ["SEND"], "delay": "1s"}, "at most 10us"),
        ({"requests": ["SEND"], "delay": "soon"}, "delay: "),
        ({"requests": ["SEND"], "die": "late"}, "'die' is no field"),
    ],
)
def test_what_is_no_scene_says_so(written, why):
    with pytest.raises(UserError, match=why):
        scene.read(written)


def test_the_verb_shows_a_failover_of_one_s_own(tmp_path, monkeypatch):
    submissions.laid_out(7, tmp_path / "lab", submissions.solution(7))
    monkeypatch.chdir(tmp_path / "lab")
    words = ["learn", "failover", "experiment.yaml", "policy.py:Failover", "--json"]
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["yours"] == found["SHIFT"]
    assert found["repeat all"]["notified_twice"] > 0
    assert found["no backup"]["gap_ns"] is None
    for policy, code in (("nothing.py:Failover", 2), ("policy.py:Other", 1)):
        words[3] = policy
        assert CliRunner().invoke(cli.app, words).exit_code == code


def test_check_draws_a_failover_that_fails(tmp_path):
    where = submissions.laid_out(
        7, tmp_path / "lab",
        submissions.changed(submissions.solution(7), ("return done, again", "return [], requests")),
    )  # fmt: skip
    done = CliRunner().invoke(cli.app, ["learn", "check", str(where), "--task", "counted"])
    assert done.exit_code == 1
    picture = (where / "failed-counted.svg").read_text()
    assert "notified of request" in picture
    assert '<desc id="words">' in picture
    assert "Picture of it" in done.stdout
    (where / "policy.py").write_text(submissions.solution(7))
    (where / "failed-other.svg").touch()
    check = ["learn", "check", str(where), "--task", "counted"]
    assert CliRunner().invoke(cli.app, check).exit_code == 0
    assert not (where / "failed-counted.svg").exists()
    assert (where / "failed-other.svg").exists()


def test_answers_of_a_process_are_not_trusted():
    """What comes from there is checked, whatever its own guard lets pass."""

    class Liar:
        def get(self, _):
            return self

        def begin(self, _):
            pass

        def call(self, question, _):
            return answers[question[0]]

    remote = outcome.RemoteWay(Liar())
    for found in ([7], ["halt"], ["stop"] * 99):
        answers = {"on_failure": found}
        with pytest.raises(outcome.PolicyError):
            remote.on_failure(0)
    for found in ([], [[0], [1]], [[0, 0], []], [["0"], []], [[], [0] * 99], [None, None]):
        answers = {"on_move": found}
        with pytest.raises(outcome.PolicyError):
            remote.on_move(0, [], 0)


def test_one_that_loops_is_ended(tmp_path):
    source = b"class Failover:\n    def on_failure(self):\n        while True: pass\n"
    source += b"    def on_move(self, requests, executed):\n        return [], None\n"
    policy = Policy(source, "Failover", "failover")
    with Workers(policy, isolated=submissions.ISOLATED) as members:
        found = outcome.run_policy(SCENES[0], 1, members)
    assert "on_failure did not return within 5 s" in str(found.error)


def test_the_hand_out_fails_both_ways():
    """Its order loses notifications, and what it repeats is executed twice."""
    policy = Policy(folder.read_hand_out(failover.LAB).encode(), "Failover", "failover")
    with Workers(policy, isolated=submissions.ISOLATED) as members:
        found = outcome.run_policy(SCENES[3], 1, members)
    assert found.failure() is None
    assert found.problems
