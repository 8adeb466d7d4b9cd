# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab demo failover`: the same job on both clocks, its run directory, and what is refused."""

import dataclasses
import json
import os
import random
import types

import numpy as np
import pyarrow.parquet as pq
import pytest

from softroce_lab.errors import EnvironmentLackError, RunError, UserError
from softroce_lab.experiment.failover import rig as failover
from softroce_lab.experiment.failover import ring_job
from softroce_lab.experiment.failover.rig import Options
from softroce_lab.experiment.hosts import rnics
from tests.cli.test_app import lab

OPTIONS = Options(hosts=3, steps=16, model_bytes=24_000, dies_at=3, repaired_at=6, seed=5)


def ran(options, *, shift=True):
    plan, hosts = failover.plan_of(options)
    job = failover.job_of(options, len(hosts))
    made = failover.VirtualRun(plan, hosts, job, options, ring_job.reference(job))
    return made.run(shift=shift)


def test_the_order_of_additions_is_that_of_the_ring():
    """Of two hosts the sum has no order; other seeds give another model."""
    job = ring_job.Job(2, 3, 16)
    model = np.zeros(16, np.float32)
    for step in range(3):
        total = ring_job.gradient(job, 0, step) + ring_job.gradient(job, 1, step)
        model -= ring_job.LEARNING_RATE * total
    assert ring_job.reference(job) == ring_job.checksum(model)
    first, second = (ring_job.reference(ring_job.Job(3, 2, 24, seed)) for seed in (1, 2))
    assert first != second


def test_the_job_stops_without_shift_and_goes_on_with_it(tmp_path):
    reported = []
    plain, shift = failover.run_on("virtual", OPTIONS, reported.append)
    assert reported == ["the job without SHIFT", "the job with SHIFT"]
    assert not plain.right
    assert any("RETRY_EXC" in error for error in plain.errors)
    assert (plain.steps_done, plain.gap_ns) == (3, None)
    assert shift.right, shift.errors
    assert shift.gap_ns > shift.detection_ns > 10**6
    assert 0 < shift.failover_ns < 10**6
    assert {each.event.after for each in shift.moments} >= {"Fallback", "Default"}
    assert {(each.host, each.peer) for each in shift.moments} == {
        ("h1", "h2"), ("h2", "h1"), ("h3", "h1"), ("h1", "h3"),
    }  # fmt: skip
    assert ran(OPTIONS).document() == shift.document()  # it goes the same way each time
    wrong = dataclasses.replace(shift, errors=("h1: wrong",))
    directory = failover.write([plain, wrong], OPTIONS, "virtual", tmp_path).resolve()
    assert json.loads((directory / "manifest.json").read_text())["verdict"] == "failed"


def test_the_nic_may_stay_dead_until_the_end():
    outcome = ran(dataclasses.replace(OPTIONS, dies_at=2, repaired_at=16))
    assert outcome.right, outcome.errors
    assert "Default" not in {each.event.after for each in outcome.moments}


def test_a_job_that_is_over_before_is_an_error():
    options = dataclasses.replace(OPTIONS, dies_at=15, repaired_at=16, into_step_s=1.0)
    with pytest.raises(RunError, match="over before the NIC died"):
        ran(options)


@pytest.mark.full("failover-moments")
def test_the_model_is_right_whenever_the_nic_dies(full):
    """100 runs, and 4 in the ordinary tests, at random moments of random steps."""
    moved = 0
    for seed in range(100 if full else 4):
        draw = random.Random(seed)
        dies = draw.randrange(12)
        options = dataclasses.replace(
            OPTIONS, seed=seed, dies_at=dies, repaired_at=draw.randrange(dies + 1, 17),
            into_step_s=draw.uniform(0, 60e-6),
        )  # fmt: skip
        outcome = ran(options)
        assert outcome.right, (seed, outcome.errors)
        moved += outcome.detection_ns is not None
    print(f"{moved} of {seed + 1} failed over, all right to the last bit")
    assert moved


def test_the_demo(nothing_left):
    options = Options(name=f"failover{os.getpid()}", hosts=2, steps=300, dies_at=20, repaired_at=30)
    plain, shift = failover.run_on("real", options)
    assert any("RETRY_EXC" in error for error in plain.errors)
    assert plain.steps_done < 300
    assert shift.right, shift.errors
    assert (shift.steps_done, shift.notifications) == (300, shift.expected)
    assert {each.event.after for each in shift.moments} >= {"Fallback", "Default"}
    document = json.loads(json.dumps(failover.document([plain, shift])))
    assert document["jobs"]["shift"]["failover_ns"] < 10**9


# ---------------------------------------------------------------- the clock, and what is refused


@pytest.fixture
def unprivileged(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def test_without_a_lab_it_is_simulated_and_says_so(unprivileged):
    reported = []
    options = Options(hosts=2, steps=6, model_bytes=4_000)
    outcomes, clock = failover.run(options, "auto", reported.append)
    assert clock == "virtual"
    assert "so the demo runs on the virtual clock, as a simulation" in reported
    assert [each.right for each in outcomes] == [False, True]


@pytest.mark.parametrize(("clock", "mode"), [("real", "auto"), ("auto", "generic")])
def test_what_only_a_lab_has_is_not_replaced(unprivileged, clock, mode):
    with pytest.raises(EnvironmentLackError):
        failover.run(Options(hosts=2, steps=6, mode=mode), clock, lambda _: None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(topology="two-hosts"), "one rail"),
        (Options(hosts=1), "1 hosts"),
        (Options(hosts=9), "9 hosts"),
        (Options(steps=10, dies_at=5, repaired_at=5), "dies in step 5"),
        (Options(steps=10, dies_at=3, repaired_at=11), "step 11 of 10"),
    ],
)
def test_a_mistake_is_told_before_what_the_machine_lacks(unprivileged, options, message):
    with pytest.raises(UserError, match=message):
        failover.run(options, "real", lambda _: None)


def test_an_unknown_rail_is_refused_with_those_there_are():
    plan, hosts = failover.plan_of(Options())
    lab = types.SimpleNamespace(plan=plan)
    with (
        pytest.raises(UserError, match="has no rail eth9") as caught,
        rnics.opened(lab, hosts[0].name, rail="eth9"),
    ):
        pass
    assert caught.value.hint == "its ports: eth1, eth2"


# ---------------------------------------------------------------- what is kept


def test_the_result_is_printed_where_it_cannot_be_kept(tmp_path):
    (tmp_path / "runs").write_text("a file")
    result = lab("demo", "failover", "--clock", "virtual", "--steps", "9", "-q", cwd=tmp_path)
    assert result.returncode != 0
    assert "model (SHA-256)" in result.stdout
    assert "Traceback" not in result.stderr


def test_the_command_line_and_its_run_directory(tmp_path):
    line = ("demo", "failover", "--clock", "virtual", "--steps", "9", "--json", "--quiet")
    result = lab(*line, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["jobs"]["shift"]["right"] is True
    directory = tmp_path / document["run_dir"]
    assert directory == tmp_path / "runs" / (tmp_path / "runs/latest").readlink()
    rows = pq.read_table(directory / "shift.parquet").to_pylist()
    assert len(rows) == len(document["jobs"]["shift"]["events"])
    assert {row["transport"] for row in rows} == {"shift"}
    assert rows[0]["time_ns"] >= document["jobs"]["shift"]["died_ns"] > 0
    losses = pq.read_table(directory / "events.parquet").to_pylist()
    assert {row["rule"] for row in losses} == {"live:down"}
    manifest = json.loads((directory / "manifest.json").read_text())
    assert [run["verdict"] for run in manifest["runs"]] == ["failed", "passed"]
    assert manifest["verdict"] == "passed"
    plain, shift = ([each["status"] for each in run["programs"].values()]
                    for run in manifest["runs"])  # fmt: skip
    assert any(plain)
    assert not any(shift)
    for verb in ("show", "ls"):
        shown = lab("results", verb, *(["latest"] if verb == "show" else []), cwd=tmp_path)
        assert shown.returncode == 0, shown.stderr
        assert "shift" in shown.stdout
