# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs compared with the bounds: ratios and the excess, of figures whose answers are known."""

import dataclasses
import json
import re

import pyarrow.parquet as pq
import pytest

from softroce_lab.errors import UserError
from softroce_lab.experiment import bounds, spec, virtual
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment.bounds import UNDEFINED, excess, excess_of
from softroce_lab.experiment.reporter import Silent
from softroce_lab.inputs import yaml_source
from softroce_lab.plan.plan import without_loss
from softroce_lab.telemetry.repairs import CAUSES

RTT_NS = 8000


@pytest.mark.parametrize(
    ("value", "with_loss", "without", "found"),
    [
        (40_000, 30_000, 20_000, 2.0),  # twice what loss costs the oracle
        (30_000, 30_000, 20_000, 1.0),
        (20_000, 30_000, 20_000, 0.0),  # as fast as without loss
        (15_000, 30_000, 20_000, -0.5),
        (40_000, 24_000, 20_000, 5.0),  # half a base RTT is enough
        (40_000, 23_999, 20_000, None),
        (40_000, 19_000, 20_000, None),  # loss shortened it
    ],
)
def test_the_excess(value, with_loss, without, found):
    assert excess(value, with_loss, without, RTT_NS) == found


def row(transport, seed=1, **figures):
    return {
        "transport": transport, "protocol": transport, "seed": seed, "verdict": "passed",
        "repair_p50_ns": None, "repair_p99_ns": None, "makespan_ns": 0,
        "fct_p50_ns": None, "fct_p99_ns": None, "fct_p999_ns": None, "step_mean_ns": None,
        "base_rtt_ns": RTT_NS,
    } | figures  # fmt: skip


def test_runs_are_compared_with_the_oracles_of_their_seed():
    rows = [
        row("oracle", 1, repair_p50_ns=10, repair_p99_ns=20, makespan_ns=1000),
        row("csa_ud", 1, repair_p50_ns=12, repair_p99_ns=30, makespan_ns=1100),
        row("oracle", 2, repair_p50_ns=100, makespan_ns=2000),
        row("csa_ud", 2, repair_p50_ns=150, repair_p99_ns=30, makespan_ns=2000),
        row("csa_ud", 3, repair_p50_ns=150, repair_p99_ns=30, makespan_ns=2000),
        row("rc", 1, repair_p50_ns=20, makespan_ns=500, verdict="failed"),
        row("oracle", 4, repair_p50_ns=10, makespan_ns=500, verdict="failed"),
        row("csa_ud", 4, repair_p50_ns=20, makespan_ns=1000),
    ]
    names = ["repair_p50_over_oracle", "repair_p99_over_oracle", "time_over_oracle"]
    ratios = [[each[name] for name in names] for each in bounds.added(rows)]
    assert ratios == [
        [1, 1, 1],
        [1.2, 1.5, 1.1],
        [1, None, 1],
        [1.5, None, 1],
        [None, None, None],
        [2, None, None],  # it never got done
        [1, None, None],
        [2, None, None],  # the oracle did not
    ]


def test_runs_are_compared_with_the_lossless_run_of_their_seed():
    rows = [
        row("lossless", 1, makespan_ns=1000, fct_p50_ns=10, fct_p99_ns=20),
        row("oracle", 1, makespan_ns=1500, fct_p50_ns=10, fct_p99_ns=40, fct_p999_ns=50),
        row("csa_ud", 1, makespan_ns=1200, fct_p50_ns=11, fct_p99_ns=30, fct_p999_ns=60),
        row("csa_ud", 2, makespan_ns=1200, fct_p50_ns=11, fct_p99_ns=30),
    ]
    names = ["time_over_lossless", "fct_p50_over_lossless", "fct_p99_over_lossless",
             "fct_p99_over_oracle", "fct_p999_over_oracle"]  # fmt: skip
    ratios = [[each[name] for name in names] for each in bounds.added(rows)]
    assert ratios[1:] == [
        [1.5, 1, 2, 1, 1],
        [1.2, 1.1, 1.5, 0.75, 1.2],
        [None] * 5,
    ]
    elsewhere = {2: row("oracle", 2, makespan_ns=600)}
    assert bounds.added(rows, elsewhere)[3]["time_over_lossless"] == 2
    here = bounds.added(rows, {1: elsewhere[2]})  # the experiment's run of lossless comes first
    assert here[2]["time_over_lossless"] == 1.2


def test_the_excess_of_a_run_needs_both_of_the_oracles():
    one, bound, clean = (row("x", fct_p99_ns=value) for value in (40_000, 30_000, 20_000))
    assert excess_of(one, bound, clean) == 2.0
    assert excess_of(one, bound, bound) == UNDEFINED
    assert excess_of(one, None, clean) is None
    assert excess_of(one, bound, None) is None
    assert excess_of(row("x"), bound, clean) is None


EXPERIMENT = """\
name: repairs
topology: {generator: {kind: star, hosts: 4, access: {rate: 10Gbit limit 1000, delay: 1us}}}
transports: [oracle, lossless, csa_ud, rc]
workload: {kind: permutation, bytes: 256KiB, message: 64KiB}
faults: [{name: loss, links: "*->*", loss: random 2%}]
seeds: [1, 2]
deadline: 5s
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    experiment = spec.of(yaml_source.parse(EXPERIMENT))
    return experiment_run.run(experiment, Silent(), under=tmp_path_factory.mktemp("runs"))


def test_a_run_directory_has_every_repair_and_its_figures(outcome):
    table = pq.read_table(outcome.directory / "repairs.parquet").to_pylist()
    manifest = json.loads((outcome.directory / "manifest.json").read_text())
    assert {each["cause"] for each in table} <= set(CAUSES)
    for found, printed in zip(manifest["runs"], outcome.document()["runs"], strict=True):
        name = found["transport"], found["seed"]
        mine = [each for each in table if (each["transport"], each["seed"]) == name]
        times = sorted(each["arrived_ns"] - each["dropped_ns"] for each in mine)
        assert found["repairs"] == len(times)
        if found["transport"] == "lossless":
            assert not times
            continue
        assert len(times) > 10
        assert found["unrepaired"] == 0
        assert found["repair_p50_ns"] == times[-(-len(times) // 2) - 1]
        assert found["repair_p99_ns"] == times[-(-99 * len(times) // 100) - 1]
        assert {key: printed[key] for key in found if key in printed} == {
            key: found[key] for key in found if key in printed
        }
        assert "repair_p99_ns" in printed["few_samples"]
    bound = {each["seed"]: each for each in manifest["runs"] if each["transport"] == "oracle"}
    for each in (run for run in manifest["runs"] if run["transport"] != "lossless"):
        over = each["repair_p50_ns"] / bound[each["seed"]]["repair_p50_ns"]
        assert each["repair_p50_over_oracle"] == over
        assert each["time_over_oracle"] == each["makespan_ns"] / bound[each["seed"]]["makespan_ns"]


def test_no_transport_repairs_faster_than_the_oracle(outcome):
    """With parity `csa_ud` may be faster than the oracle, but not in these two runs."""
    for each in outcome.document()["runs"]:
        if each["transport"] != "lossless":
            assert each["repair_p50_over_oracle"] >= 1
            assert each["time_over_oracle"] >= 1


def test_lossless_is_the_oracle_on_a_fabric_that_loses_nothing(outcome):
    """The rule of the other runs is not called idle: it is one that `lossless` does without."""
    clean = spec.of(yaml_source.parse(EXPERIMENT.replace("loss: random 2%", "loss: random 0%")))
    alike = dataclasses.replace(clean, transports=clean.transports[:1])
    without = [virtual.run(alike, alike.transports[0], seed, lambda _: None) for seed in (1, 2)]
    document = outcome.document()
    lossless = [run for run in document["runs"] if run["transport"] == "lossless"]
    assert [run["makespan_ns"] for run in lossless] == [run.makespan_ns for run in without]
    assert {run["injected_drops"] for run in lossless} == {0}
    assert {run["time_over_lossless"] for run in lossless} == {1}
    assert document["idle_rules"] == []
    for each in document["runs"]:
        assert each["time_over_lossless"] >= 1


def test_faults_that_lose_nothing_stay():
    text = EXPERIMENT.replace("loss: random 2%}", "loss: random 2%, reorder: 1%, corrupt: 1%}")
    experiment = spec.of(yaml_source.parse(text))
    plan = experiment.plan(1)
    kept = without_loss(plan)
    words = {type(fault.effect).__name__ for fault in kept.faults}
    assert words == {"Delay", "Queue", "Reorder"}
    assert len(kept.faults) < len(plan.faults)
    assert kept.digest != plan.digest


def test_a_job_has_no_fabric_of_its_own():
    jobs = """workload:
  kind: jobs
  jobs:
    - {name: a, workload: {kind: incast, hosts: [h3, h4], bytes: 1kB}}
    - {name: b, transport: lossless, workload: {kind: incast, hosts: [h1, h2], bytes: 1kB}}
"""
    text = re.sub(r"workload: .*\n", jobs, EXPERIMENT)
    with pytest.raises(UserError, match="a job has no lossless") as caught:
        spec.of(yaml_source.parse(text, "jobs.yaml"))
    assert caught.value.line == 8
