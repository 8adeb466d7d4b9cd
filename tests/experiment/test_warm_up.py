# SPDX-License-Identifier: GPL-2.0-or-later
"""A warm-up of closed workloads: the same work under the same faults, which figures leave out."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from softroce_lab.errors import UserError
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec, virtual
from softroce_lab.experiment.forecast import memory
from softroce_lab.experiment.reporter import Silent
from softroce_lab.inputs import yaml_source
from softroce_lab.results.page import assemble
from softroce_lab.results.recorded import Recorded

TEXT = """\
name: warm
topology: {generator: {kind: star, hosts: 4, access: {rate: 10Gbit, delay: 1us, limit: 1MiB}}}
transports: [csa_ud, rc]
workload: WORKLOAD
faults: [{name: loss, links: "*<->s1", loss: random 1%}]
payload: verify
deadline: 5s
"""
RING = "{kind: ring-all-reduce, bytes: 256KiB, message: 16KiB, warm_up: 2, every: 20ms}"
MS = 10**6


def experiment(workload, text=TEXT):
    return spec.of(yaml_source.parse(text.replace("WORKLOAD", workload), "warm.yaml"))


def run_of(workload, label="csa_ud", text=TEXT):
    found = experiment(workload, text)
    (transport,) = (each for each in found.transports if each.label == label)
    return virtual.run(found, transport, 1, lambda _: None)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    return experiment_run.run(experiment(RING), Silent(), under=tmp_path_factory.mktemp("runs"))


def test_figures_are_of_what_comes_after_it(outcome):
    """96 messages an operation, of which there are three, one in 20 ms."""
    manifest = json.loads((outcome.directory / "manifest.json").read_text())
    for run in manifest["runs"]:
        assert (run["messages"], run["delivered"], run["measured"]) == (288, 288, 96)
        assert run["verified"] is True
        assert run["makespan_ns"] == run["operation_p50_ns"] < 20 * MS
        assert run["end_ns"] > 40 * MS
        once_bps = 96 * 16 * 1024 * 8 * 10**9 // run["makespan_ns"]
        assert run["goodput_bps"] == once_bps
        assert run["algbw_bps"] == 8 * 10**9 * (256 << 10) // run["makespan_ns"]


def test_the_table_of_messages_says_which_they_are(outcome):
    rows = pq.read_table(outcome.directory / "messages.parquet").to_pylist()
    assert all(row["after_warm_up"] == (row["operation"] == 2) for row in rows)
    assert all((row["posted_ns"] >= 40 * MS) == row["after_warm_up"] for row in rows)


def test_repairs_of_the_warm_up_are_left_out(outcome):
    manifest = json.loads((outcome.directory / "manifest.json").read_text())
    rows = pq.read_table(outcome.directory / "repairs.parquet").to_pylist()
    for run in manifest["runs"]:
        mine = [row for row in rows if row["transport"] == run["transport"]]
        after = [row for row in mine if row["dropped_ns"] >= 40 * MS]
        assert run["repairs"] == len(after)
        assert 0 < len(after) < len(mine) // 2
        assert run["unrepaired"] == 0


def test_the_report_says_so(outcome):
    page = assemble.page(Recorded(outcome.directory))
    assert "384 of 576 delivered messages were the warm-up" in page


def test_without_a_distance_the_makespan_begins_when_the_warm_up_is_over():
    run = run_of(RING.replace(", every: 20ms", ""))
    warm = run.messages[run.messages["operation"] < 2]
    after = run.messages[run.messages["operation"] == 2]
    assert after["posted_ns"].min() < warm["completed_ns"].max()  # hosts do not wait for others
    assert run.makespan_ns == after["completed_ns"].max() - warm["completed_ns"].max() > 0


def test_without_loss_it_changes_no_time():
    """A quiet fabric: an operation after two others takes what it takes at first."""
    text = TEXT.replace("random 1%", "random 0%").replace("csa_ud", "oracle")
    warm = run_of(RING, "oracle", text)
    cold = run_of(RING.replace(", warm_up: 2, every: 20ms", ""), "oracle", text)
    assert cold.after_warm_up is None
    assert warm.makespan_ns == pytest.approx(cold.makespan_ns, rel=0.01)
    assert len(warm.completion_times_ns()) == len(cold.completion_times_ns())


@pytest.mark.parametrize(
    "workload",
    [
        "{kind: incast, bytes: 64KiB, message: 16KiB, ",
        "{kind: permutation, bytes: 64KiB, message: 16KiB, repeat: 2, ",
        "{kind: collective, op: all-to-all, bytes: 64KiB, message: 16KiB, ",
        "{kind: moe, tokens: 16, hidden: 512, experts: 8, message: 16KiB, repeat: 2, ",
    ],
)
def test_of_closed_workloads(workload):
    run = run_of(f"{workload}warm_up: 1, every: 5ms}}")
    cold = run_of(f"{workload[:-2]}}}")
    assert run.verdict == "passed"
    assert run.verified is True
    after = run.messages["operation"] > 0
    assert (run.measured == after).all()
    assert run.messages["posted_ns"][after].min() >= 5 * MS
    assert len(set(run.messages["operation"])) == 1 + len(set(cold.messages["operation"]))
    assert run.makespan_ns < 6 * MS


def test_of_a_training():
    training = "{kind: training, layers: 2, forward: 50us, gradient: 64KiB, steps: 3, warm_up: 2}"
    run = run_of(training)
    summary = run.summary()
    assert (summary["steps"], len(set(run.messages["operation"]))) == (3, 5)
    times_ns = run.figures["step_times_ns"]
    assert summary["step_mean_ns"] == int(times_ns.sum()) // 3
    assert summary["step_mean_ns"] > 300_000  # two layers forward and backward
    whole = run_of(training.replace("steps: 3, warm_up: 2", "steps: 5"))
    assert (whole.figures["step_times_ns"][2:] == times_ns).all()
    assert (whole.messages == run.messages).all()
    assert 0 < summary["step_waiting"] < 1


def test_a_forecast_counts_it():
    needed = [
        memory.needed_bytes(experiment(RING.replace("warm_up: 2", f"warm_up: {operations}")))
        for operations in (1, 200)
    ]
    assert needed[0] < needed[1]


REFUSED = [
    ("{kind: open-loop, load: 50%, sizes: hadoop, duration: 1ms, warm_up: 1}", "first fifth"),
    ("{kind: point-to-point, bytes: 1kB, warm_up: -1}", "warm_up -1 is below 0"),
    ("{kind: point-to-point, bytes: 1kB, every: 1ms}", "'every' without a repeat"),
    ("{kind: moe, tokens: 1, hidden: 1, experts: 4, every: 1ms}", "'every' without a repeat"),
    ("{kind: point-to-point, bytes: 1kB, repeat: 65536, warm_up: 1}", "more than 65,536"),
    (
        "{kind: jobs, jobs: [{name: a, workload: {kind: incast, bytes: 1kB, warm_up: 1}}]}",
        "job a has a warm-up",
    ),
]


@pytest.mark.parametrize(("workload", "why"), REFUSED)
def test_it_is_refused_where_it_cannot_be(workload, why):
    with pytest.raises(UserError) as caught:
        experiment(workload)
    assert why in f"{caught.value.what} {caught.value.hint}"
    assert caught.value.line == 4


def test_a_file_has_none(tmp_path):
    with pytest.raises(UserError, match="warm_up") as caught:
        experiment(f"{{kind: file, path: {tmp_path}, warm_up: 1}}")
    assert caught.value.hint == "a file is sent once"


def test_a_run_that_ended_in_its_warm_up_has_no_time():
    run = run_of(RING, text=TEXT.replace("deadline: 5s", "deadline: 30ms"))
    assert run.verdict == "failed"
    summary = run.summary()
    assert (summary["measured"], summary["makespan_ns"], summary["fct_p50_ns"]) == (0, 0, None)
    assert np.count_nonzero(run.messages["posted_ns"] >= 0) == 192
