# SPDX-License-Identifier: GPL-2.0-or-later
"""Operations of queue pairs: RC breaks no rule of order, and each rule can be broken."""

import types

import pytest

from softroce_lab import _native
from softroce_lab.experiment.fuzz import operations
from softroce_lab.inputs import yaml_source

SEEDS = 400
RULES = {  # what is falsified for the model, and the rule that has to notice it
    "completion_lost": "send order",
    "completion_twice": "ends once",
    "completions_swapped": "send order",
    "receive_of_next": "receive order",
    "immediate_changed": "receive order",
    "error_hidden": "errors",
    "written_byte_lost": "data before completion",
    "received_byte_lost": "data before completion",
    "last_byte_early": "held last packet",
    "read_byte_lost": "READ",
    "atomic_twice": "atomics",
    "atomic_result_changed": "atomics",
    "fence_ignored": "fence",
    "posts_forgotten": "drained queue",
    "guard_touched": "guards",
    "region_pinned": "leaks",
}
MOST_SEEDS = 200
CARRIERS = ("csa_ud", "irn", "falcon", "ud_rto", "sdr_sr")
CARRIED_SEEDS = 60


def test_rc_breaks_no_rule():
    transports = operations.transports_of(["rc"])
    seen = (operations.run_trial(operations.Trial(seed), transports) for seed in range(SEEDS))
    found = operations.Campaign().gather(seen, lambda: False, lambda _: None)
    assert [(each.replay, each.what) for each in found.violations] == []
    never_met = [name for name, share in found.coverage.items() if share == 0]
    assert never_met == []


def test_each_mistake_has_a_rule():
    assert list(RULES) == list(_native.operation_mistakes)


@pytest.mark.parametrize("mistake", RULES)
def test_a_rule_notices_what_breaks_it(mistake):
    config = _native.MessageConfig()
    rules = (
        violation.partition(":")[0]
        for seed in range(MOST_SEEDS)
        for violation in _native.operation_trial(seed, config, mistake)
    )
    assert RULES[mistake] in rules


def test_a_seed_is_the_same_again():
    stories = [operations.Trial(11).run("rc", tells_story=True).story for _ in range(2)]
    assert stories[0] == stories[1]
    assert len(stories[0]) > 20


def test_posts_and_disturbances_are_left_out():
    whole = operations.Trial(11).run("rc")
    seed = next(
        seed for seed in range(100) if {"loss", "a cut"} <= {*operations.Trial(seed).run("rc").met}
    )
    part = operations.Trial(11, tuple(whole.posts[1:])).run("rc")
    assert (part.posts, part.violations) == (whole.posts[:1], [])
    calm = operations.Trial(seed, without_disturbances=("loss", "cut")).run("rc")
    assert not {"loss", "a cut"} & {*calm.met}


@pytest.fixture
def one_post_breaks(monkeypatch):
    """Seed 11 breaks a rule as long as it has its post 7, and loss."""
    run = operations.Trial.run

    def broken(trial, transport, **options):
        outcome = run(trial, transport, **options)
        breaks = 7 in outcome.posts and "loss" not in trial.without_disturbances
        violations = ["READ: on purpose"] if breaks else []
        return types.SimpleNamespace(
            violations=violations, met=outcome.met, posts=outcome.posts, story=outcome.story
        )

    monkeypatch.setattr(operations.Trial, "run", broken)


@pytest.mark.usefixtures("one_post_breaks")
def test_what_breaks_a_rule_is_made_small():
    [violation] = operations.run_trial(operations.Trial(11), ["rc"]).violations
    small = operations.shrink(violation)
    assert (small.rule, small.posts) == ("READ", (7,))
    left = {*_native.operation_disturbances} - {*small.trial.without_disturbances}
    assert left == {"loss"}
    text = operations.case_text(small)
    assert operations.case_of(yaml_source.parse(text)) == small.trial
    assert ": post " in text


@pytest.mark.parametrize("transport", CARRIERS)
def test_a_transport_breaks_no_rule(transport):
    """Of each way in which transports find losses one."""
    outcomes = {seed: operations.Trial(seed).run(transport) for seed in range(CARRIED_SEEDS)}
    assert {seed: each.violations for seed, each in outcomes.items() if each.violations} == {}
    assert sum(len(each.posts) for each in outcomes.values()) > 10 * CARRIED_SEEDS


def test_a_seed_that_crashes_is_a_violation(monkeypatch):
    def crashing(*_, **__):
        raise ValueError("on purpose")

    monkeypatch.setattr(_native, "run_operation_trial", crashing)
    [violation] = operations.run_trial(operations.Trial(3), ["rc"]).violations
    assert violation.what == "crashes: ValueError: on purpose"
    assert violation.replay == "lab fuzz operations --transport rc --seed 3 --seeds 1"


def test_processes_come_to_the_same_as_one():
    alone = operations.Campaign()
    for seed in range(20):
        alone.add(operations.run_trial(operations.Trial(seed), ["rc"]))
    assert operations.campaign(range(20), ("rc",), 2).document() == alone.document()
