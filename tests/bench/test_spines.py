# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench spines`: how soon packets leave a spine that loses them."""

import json
import os
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from softroce_lab.bench import spines
from softroce_lab.bench.spines import Back, Case, Left, Outcome
from softroce_lab.cli.app import app
from softroce_lab.errors import RunError
from softroce_lab.experiment.forecast import base_rtt

VIRTUAL, REAL = spines.CLOCKS.values()


def test_a_transport_of_one_path_never_leaves_a_grey_spine():
    """With one path all of a transfer goes over the bad spine, or nothing."""
    case = Case(2, "random 10%", 0.1)
    transport = "{name: ud_rto, paths: 1}"
    shares = [
        spines.measure(case, spines.experiment(case, transport, "2MiB", VIRTUAL, seed)).others
        for seed in range(1, 6)
    ]
    assert all(share < 0.25 or share == 1 for share in shares)
    assert min(shares) < 0.25


def test_without_loss_all_packets_count_as_on_other_spines():
    case = Case(2, "random 0%", 1)
    found = spines.measure(case, spines.experiment(case, "csa_ud", "2MiB", VIRTUAL, 1))
    assert (found.others, found.retransmitted) == (1, 0)


@pytest.mark.parametrize(
    ("left", "missed"),
    [
        (Left(1, 0.95, 0.02), False),
        (Left(1, 0.94, 0.02), True),
        (Left(1, 0.95, 0.03), True),
    ],
)
def test_a_seed_misses_by_either_limit(left, missed):
    assert left.missed == missed


@pytest.mark.parametrize("seed", [2, 5])
def test_a_spine_that_carries_again_is_used_again(seed):
    """Seed 2: the policy leaves the dead port before it falls silent."""
    dead = spines.CASES["dead, one of two"]
    assert spines.measure_back(dead, "csa_ud", VIRTUAL, seed) > 0


def test_without_trials_it_is_not():
    transport = "{name: csa_ud, options: {port_trials: false}}"
    assert spines.measure_back(spines.CASES["dead, one of two"], transport, VIRTUAL, 2) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_dead_spine_is_left_on_the_real_clock():
    """For the second half of a transfer; `lab bench spines --clock real` says how soon.

    A trial whether it carries again costs some 80 packets: none here.
    """
    dead = spines.CASES["dead, one of two"]
    transport = "{name: csa_ud, options: {port_trials: false}}"
    run, lost_ns = spines.transfer(spines.experiment(dead, transport, "32MiB", REAL, 1))
    needed = run.summary()["packets_sent"] - run.summary()["retransmitted"]
    late = int((lost_ns >= run.makespan_ns // 2).sum())
    assert late <= (1 - spines.OTHERS_LIMIT) * needed / 2
    assert all(host["decision_lateness_ns"]["p100"] > 0 for host in run.facts["processes"].values())


@pytest.mark.parametrize(("late_ns", "share"), [(0, 0.75), (10_000_000, 1)])
def test_packets_count_after_five_round_trips_and_the_latest_decision(late_ns, share):
    dead = spines.CASES["dead, one of two"]
    loaded = spines.experiment(dead, "csa_ud", "16MiB", REAL, 1)
    rtt_ns = base_rtt.of(loaded.plan(1), 2048).rtt_ns
    after_ns = 5 * (rtt_ns + late_ns)
    packets_before = -(-after_ns * 200_000_000 // (8 * 2048 * 10**9))
    host = {"decision_lateness_ns": {"p100": 5 * late_ns}}
    run = SimpleNamespace(
        facts={"path_mtu": 2048, "processes": {"h1": host, "h2": host}},
        links=[{"name": "leaf1->spine1", "sent": 0, "injected_drops": packets_before + 100}],
        summary=lambda: {"packets_sent": 8292, "retransmitted": 100},
    )
    lost_ns = np.full(25, 5 * rtt_ns)
    assert spines.left(dead, loaded, run, lost_ns).others == share


def test_words():
    outcome = Outcome("dead, one of two", "csa_ud", [Left(1, 0.9, 0.01), Left(2, 1, 0.02)])
    assert outcome.text == (
        "dead, one of two          csa_ud   on other spines after 5 RTTs: median 95.0%, "
        "least 90.0%; "
        "retransmitted: median 1.50%, most 2.00%; 1 of 2 seeds miss"
    )
    assert spines.document([outcome], Back("csa_ud", {1: 3}))["verdict"] == "failed"


def test_a_seed_that_fails_does_not_keep_the_others_from_running(monkeypatch):
    def measure(case, loaded):
        (seed,) = loaded.seeds
        if seed == 2:
            raise RunError("seed 2: the deadline came")
        return Left(seed, 1, 0.01)

    monkeypatch.setattr(spines, "measure", measure)
    outcomes = spines.run("csa_ud", 3, VIRTUAL, lambda _: None)
    assert [each.name for each in outcomes] == list(spines.CASES)
    assert all([left.seed for left in each.found] == [1, 3] for each in outcomes)
    assert outcomes[0].text.endswith(
        "; 0 of 2 seeds miss, 1 failed\n  failed: seed 2: the deadline came"
    )
    document = spines.document(outcomes, Back("csa_ud", {}))
    assert document["verdict"] == "failed"
    assert document["cases"][0]["failed"] == ["seed 2: the deadline came"]


def test_a_transfer_that_does_not_end_is_a_failed_seed_without_figures(monkeypatch):
    monkeypatch.setattr(spines, "CASES", {"all dead": Case(1, "blackout", 1)})
    monkeypatch.setattr(spines, "BYTES", "1MiB")
    (outcome,) = spines.run("csa_ud", 1, VIRTUAL, lambda _: None)
    assert not outcome.passed
    assert outcome.text.splitlines()[0].endswith("no figures, 1 failed")


@pytest.mark.full("spines")
def test_the_command(full, monkeypatch):
    """Every case runs; limits are told, not held, for they depend on the transport."""
    if not full:
        monkeypatch.setattr(spines, "BYTES", "4MiB")
    how = ["--full"] if full else ["--seeds", "1"]
    result = CliRunner().invoke(app, ["bench", "spines", "--json", *how])
    found = json.loads(result.stdout)
    assert [each["case"] for each in found["cases"]] == list(spines.CASES)
    assert result.exit_code == (found["verdict"] == "failed")
    assert all(len(each["seeds"]) == (100 if full else 1) for each in found["cases"])


def test_the_limits_stand_below_the_figures(monkeypatch):
    monkeypatch.setattr(spines, "BYTES", "4MiB")
    lines = CliRunner().invoke(app, ["bench", "spines", "-q", "--seeds", "2"]).stdout.splitlines()
    assert len(lines) == len(spines.CASES) + 2
    assert all(" of 2 seeds" in line for line in lines[:-1])
    assert lines[-1] == (
        "limits, for every seed: at least 95% on other spines, less than 3% retransmitted, "
        "the spine that carries again used"
    )
