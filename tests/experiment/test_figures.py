# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures that only some kinds of workloads have."""

import pytest

from softroce_lab.experiment import virtual, workload_table
from softroce_lab.experiment.figure_table import few_samples
from softroce_lab.workloads.training import Traffic
from tests.experiment.kinds.examples import of

STAR = """\
name: star
topology: {generator: {kind: star, hosts: 4, access: {rate: 100Gbit, delay: 1us}}}
transports: [rc]
"""


def run(workload, seed=1):
    experiment = of(STAR + f"workload: {workload}\n")
    [transport] = experiment.transports
    return virtual.run(experiment, transport, seed, lambda _: None)


@pytest.mark.parametrize(
    ("op", "factor"),
    [
        ("all-reduce", 2 * 3 / 4),
        ("reduce-scatter", 3 / 4),
        ("all-gather", 3 / 4),
        ("broadcast", 1),
        ("all-to-all", 3 / 4),
    ],
)
def test_bandwidths_are_those_of_nccl_tests(op, factor):
    summary = run(f"{{kind: collective, op: {op}, bytes: 1MiB}}").summary()
    assert summary["algbw_bps"] == 8 * 10**9 * 2**20 // summary["operation_p50_ns"]
    assert summary["busbw_bps"] == int(summary["algbw_bps"] * factor)


TRAINING = "{kind: training, layers: 2, forward: 50us, gradient: 64KiB, steps: 3}"


def test_steps_of_a_training_follow_each_other():
    found = run(TRAINING)
    barriers = found.messages[found.messages["step"] == Traffic.BARRIER]
    ends = [barriers[barriers["operation"] == step]["received_ns"].max() for step in range(3)]
    times = sorted([ends[0], ends[1] - ends[0], ends[2] - ends[1]])
    summary = found.summary()
    assert (summary["step_p50_ns"], summary["step_p99_ns"]) == (times[1], times[2])
    assert summary["step_p50_ns"] > 2 * 150_000
    assert summary["step_waiting"] == pytest.approx(1 - 3 * 300_000 / ends[2])
    assert 0 < summary["step_waiting"] < 0.2


def test_a_step_takes_the_computation_then_the_gradients_then_the_barrier():
    """By hand: 2 x 300 us, six steps of a ring with 128 KiB each, and two rounds of a barrier."""
    workload = "{kind: training, layers: 2, forward: 100us, backward: 200us, gradient: 256KiB}"
    summary = run(f"{workload}\nmtu: 4200").summary()
    frame_bytes, empty_bytes = 4096 + 58, 62  # Ethernet, IPv4, UDP, BTH, ICRC; immediate data
    path_ns = 2000  # two links, and at the switch each last frame once more
    ring_step_ns = path_ns + 0.08 * (33 * frame_bytes + 2 * 4)
    barrier_round_ns = path_ns + 0.08 * 2 * empty_bytes
    least_ns = 600_000 + 6 * ring_step_ns + 2 * barrier_round_ns
    acknowledgements_ns = 0.08 * 6 * 32 * empty_bytes  # the most that share a link with data
    assert acknowledgements_ns < barrier_round_ns / 2
    assert least_ns - 8 <= summary["step_p50_ns"] <= least_ns + acknowledgements_ns


def test_percentiles_of_few_steps_are_marked_with_their_number():
    found = run(TRAINING)
    assert found.summary()["steps"] == 3
    assert {"step_p99_ns"} == {key for key in found.document()["few_samples"] if "step" in key}
    _, lines = workload_table.lines([found.summary()])
    cells = {line.title: line.cells[0] for line in lines}
    assert cells["p99 step"].endswith("* (n 3)")
    assert "*" not in cells["p50 step"]
    enough = found.summary() | {"steps": 100}
    assert not [key for key in few_samples(enough) if "step" in key]
    [cell] = [each.cells[0] for each in workload_table.lines([enough])[1] if each[0] == "p99 step"]
    assert "*" not in cell


def test_a_pipeline_waits_for_its_bubble_at_least():
    more = "activation: 4B, microbatches: 2, parallel: {pipeline: 4}}"
    workload = f"{{kind: training, layers: 4, forward: 1ms, gradient: 0B, {more}"
    waiting = run(workload).summary()["step_waiting"]
    assert 3 / 5 < waiting < 3 / 5 + 0.01  # of M + P - 1 passes P - 1 are waiting


TWO_HOSTS = TRAINING.replace("}", ", hosts: [h3, h4]}")
JOBS = (
    "{kind: jobs, jobs: [{name: alone, workload: {kind: point-to-point, from: h1, to: h2,"
    f" bytes: 1MiB}}}}, {{name: steps, workload: {TWO_HOSTS}}}]}}"
)


def test_each_job_has_figures_of_its_own():
    summary = run(JOBS).summary()
    alone = run("{kind: point-to-point, from: h1, to: h2, bytes: 1MiB}").summary()
    steps = run(TWO_HOSTS).summary()
    assert [*summary["jobs"]] == ["alone", "steps"]
    for name, expected in (("alone", alone), ("steps", steps)):  # on a star they do not meet
        found = dict(summary["jobs"][name])
        assert found.pop("few_samples") == few_samples(expected)
        assert found.items() <= expected.items()
        assert {"verdict", "makespan_ns", "fct_p99_ns", "step_p50_ns", "busbw_bps"} <= found.keys()
    assert summary["messages"] == alone["messages"] + steps["messages"]
    assert "jobs" not in alone


def test_a_job_that_failed_leaves_the_others_their_verdict():
    summary = run(JOBS + "\ndeadline: 400us").summary()
    verdicts = {name: each["verdict"] for name, each in summary["jobs"].items()}
    assert summary["verdict"] == "failed"
    assert verdicts == {"alone": "passed", "steps": "failed"}
