# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab demo failover --clock virtual`: the same job, simulated."""

import dataclasses
import json
import random

import pyarrow.parquet as pq
import pytest

from softroce_lab.errors import RunError
from softroce_lab.experiment.failover import rig as failover
from softroce_lab.experiment.failover import ring_job
from softroce_lab.experiment.failover.rig import Options
from tests.cli.test_app import lab

OPTIONS = Options(hosts=3, steps=16, model_bytes=24_000, dies_at=3, repaired_at=6, seed=5)


def ran(options, *, shift):
    plan, hosts = failover.plan_of(options)
    job = failover.job_of(options, len(hosts))
    made = failover.VirtualRun(plan, hosts, job, options, ring_job.reference(job))
    return made.run(shift=shift)


def test_the_job_stops_without_shift_and_goes_on_with_it():
    reported = []
    plain, shift = failover.run_on("virtual", OPTIONS, reported.append)
    assert reported == ["the job without SHIFT", "the job with SHIFT"]
    assert not plain.right
    assert any("RETRY_EXC" in error for error in plain.errors)
    assert plain.steps_done == 3
    assert plain.gap_ns is None
    assert shift.right, shift.errors
    assert shift.gap_ns > shift.detection_ns > 10**6
    assert shift.failover_ns < 10**6
    assert {each.event.after for each in shift.moments} >= {"Fallback", "Default"}
    assert {(each.host, each.peer) for each in shift.moments} == {
        ("h1", "h2"), ("h2", "h1"), ("h3", "h1"), ("h1", "h3"),
    }  # fmt: skip


def test_a_job_that_is_wrong_is_no_passed_run(tmp_path):
    plain, shift = failover.run_on("virtual", OPTIONS, lambda _: None)
    wrong = dataclasses.replace(shift, errors=("h1: wrong",))
    directory = failover.write([plain, wrong], OPTIONS, "virtual", tmp_path).resolve()
    assert json.loads((directory / "manifest.json").read_text())["verdict"] == "failed"


def test_the_result_is_printed_where_it_cannot_be_kept(tmp_path):
    (tmp_path / "runs").write_text("a file")
    result = lab("demo", "failover", "--clock", "virtual", "--steps", "9", "-q", cwd=tmp_path)
    assert result.returncode != 0
    assert "model (SHA-256)" in result.stdout
    assert "Traceback" not in result.stderr


def test_it_goes_the_same_way_each_time():
    one, other = (ran(OPTIONS, shift=True).document() for _ in range(2))
    assert one == other
    assert one["events"]


def test_the_nic_may_stay_dead_until_the_end():
    options = dataclasses.replace(OPTIONS, dies_at=2, repaired_at=16)
    outcome = ran(options, shift=True)
    assert outcome.right, outcome.errors
    assert "Default" not in {each.event.after for each in outcome.moments}


def test_a_job_that_is_over_before_is_an_error():
    options = dataclasses.replace(OPTIONS, dies_at=15, repaired_at=16, into_step_s=1.0)
    with pytest.raises(RunError, match="over before the NIC died"):
        ran(options, shift=True)


@pytest.mark.full("failover-moments")
def test_the_model_is_right_whenever_the_nic_dies(full):
    """100 runs, and 8 in the ordinary tests, at random moments of random steps."""
    moved = 0
    for seed in range(100 if full else 8):
        draw = random.Random(seed)
        dies = draw.randrange(12)
        options = dataclasses.replace(
            OPTIONS, seed=seed, dies_at=dies, repaired_at=draw.randrange(dies + 1, 17),
            into_step_s=draw.uniform(0, 60e-6),
        )  # fmt: skip
        outcome = ran(options, shift=True)
        assert outcome.right, (seed, outcome.errors)
        moved += outcome.detection_ns is not None
    print(f"{moved} of {seed + 1} failed over, all right to the last bit")
    assert moved


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
