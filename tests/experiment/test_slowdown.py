# SPDX-License-Identifier: GPL-2.0-or-later
"""Slowdown of open-loop traffic, and what its runs say."""

import dataclasses

import numpy as np
import pyarrow.parquet as pq
import pytest

from softroce_lab.experiment import figure_table, virtual, workload_record, workload_table
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment.figure_table import (
    FIGURES,
    FLOWS,
    MESSAGES,
    SIZE_CLASSES,
    few_samples,
)
from softroce_lab.experiment.gates import expect
from softroce_lab.experiment.messages import NEVER_NS
from softroce_lab.experiment.reporter import Silent
from softroce_lab.experiment.sweep.rows import columns, fits
from softroce_lab.telemetry.rundir import RunDirectory
from softroce_lab.transports import registry
from tests.experiment.kinds.examples import of

STAR = "{generator: {kind: star, hosts: 4, access: {rate: 100Gbit, delay: 1us}}}"
SLOW_SPINES = (
    "{generator: {kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 2, "
    "access: {rate: 100Gbit, delay: 1us}, core: {rate: 40Gbit, delay: 1us}}}"
)
SPARSE = "load: 0.5%, sizes: [1B, 100B, 4kB, 10kB, 300kB], duration: 100ms"
SEED = 3
APART_NS = 50_000  # control packets of a flow have passed so long after it
BUSY = "load: 60%, sizes: hadoop, duration: 1ms"


def experiment(workload, transport="csa_ud", more=""):
    return of(
        f"name: slow\ntopology: {STAR}\ntransports: [{transport}]\nlb: flow\n"
        f"workload: {{kind: open-loop, {workload}}}\n{more}"
    )


def run(*written):
    made = experiment(*written)
    return virtual.run(made, made.transports[0], 1, lambda _: None)


@pytest.mark.parametrize("transport", registry.transports())
@pytest.mark.parametrize("size", [1, 100, 2009, 4000, 10_000, 300_000, 3_000_000])
def test_a_single_flow_has_a_slowdown_of_1(transport, size):
    """All of the load is this one flow, and with this seed it arrives after the warm-up."""
    time_ns = max(4 * size, 100_000)
    load = f"load: {4 * size / time_ns:.8f}%, duration: {time_ns}ns"
    made = experiment(f"{load}, sizes: [{size}B], hosts: 2", transport)
    found = virtual.run(made, made.transports[0], SEED, lambda _: None)
    assert found.verdict == "passed", found.reasons
    assert len(found.messages) == found.summary()["measured"] == 1
    assert found.slowdowns().tolist() == [1.0]


@pytest.mark.parametrize("transport", registry.transports())
@pytest.mark.parametrize("size", [4000, 100_000, 3_000_000])
def test_a_single_flow_over_slower_spines(transport, size):
    """Exactly 1 on one path; packets of several paths meet behind them in another order."""
    time_ns = max(4 * size, 100_000)
    made = of(
        f"name: slow\ntopology: {SLOW_SPINES}\ntransports: [{transport}]\nlb: flow\n"
        f"workload: {{kind: open-loop, load: {4 * size / time_ns:.8f}%, "
        f"duration: {time_ns}ns, sizes: [{size}B], hosts: [h1, h3]}}\n"
    )
    found = virtual.run(made, made.transports[0], SEED, lambda _: None)
    assert found.verdict == "passed", found.reasons
    off = 0 if transport in ("rc", "irn", "srnic") else 0.007
    assert found.slowdowns().tolist() == [pytest.approx(1, abs=off)]


@pytest.mark.parametrize("transport", registry.transports())
def test_flows_that_meet_no_other_are_as_fast_as_alone(transport):
    """But for control packets that they meet, and what a sender remembers of its peer."""
    found = run(SPARSE, transport)
    assert found.verdict == "passed", found.reasons
    begun, ended = found.flows.arrival_ns, found.messages["received_ns"]
    apart = [
        row
        for row in range(len(begun))
        if ((begun[row] - APART_NS < ended) & (begun < ended[row] + APART_NS)).sum() == 1
    ]
    assert len(apart) > 100
    ratios = ((ended - begun) / found.flows.alone_ns)[apart]
    assert ratios.min() == 1.0
    assert ratios.max() < (1.02 if transport != "rc" else 1.0000001)
    assert (ratios == 1.0).mean() > 0.85


def test_classes_have_all_flows_after_the_warm_up():
    found = run(BUSY)
    summary = found.summary()
    late = found.flows.arrival_ns >= 200_000
    assert summary["measured"] == late.sum() < summary["delivered"] == len(found.messages)
    assert [each["size_class"] for each in summary["slowdown"]] == list(SIZE_CLASSES)
    assert sum(each["n"] for each in summary["slowdown"]) == late.sum()
    sizes = found.messages["bytes"][late]
    counts = [(sizes <= 10**at).sum() for at in range(4, 8)]
    assert np.cumsum([each["n"] for each in summary["slowdown"]])[:4].tolist() == counts
    times = found.messages["received_ns"] - found.flows.arrival_ns
    ratios = (times / found.flows.alone_ns)[late]
    small = np.sort(ratios[sizes <= 10**4])
    assert summary["slowdown"][0]["p50"] == small[-(-len(small) // 2) - 1]
    assert summary["slowdown"][0]["p99"] == small[-(-len(small) * 99 // 100) - 1]
    assert summary["slowdown_p50"] == np.sort(ratios)[-(-len(ratios) // 2) - 1]
    assert summary["offered_load"] == pytest.approx(0.6, rel=0.01)
    taken = (found.messages["completed_ns"] - found.flows.arrival_ns)[late]
    for figure, chosen in (("fct_small_p99_ns", sizes <= 10**5),
                           ("fct_medium_p99_ns", (sizes > 10**5) & (sizes <= 10**7)),
                           ("fct_large_p99_ns", sizes > 10**7)):  # fmt: skip
        ordered = np.sort(taken[chosen])
        assert summary[figure] == (
            ordered[-(-len(ordered) * 99 // 100) - 1] if chosen.any() else None
        )


def test_a_flow_of_the_largest_size_of_a_class_is_in_it():
    most = [10**4, 10**5, 10**6, 10**7]
    sizes = np.array([1, *most, *(size + 1 for size in most)])
    found = figure_table.by_size(sizes, np.arange(1.0, 10.0))
    assert [each["n"] for each in found] == [2, 2, 2, 2, 1]
    assert [each["p50"] for each in found] == [1.0, 3.0, 4.0, 5.0, 9.0]
    assert [each["p99"] for each in found] == [2.0, 6.0, 7.0, 8.0, 9.0]


def test_the_wait_for_a_post_counts():
    """With one send outstanding to a peer, flows wait for those before them."""
    found = run(BUSY, "rc", "depth: 1\n")
    waited = found.messages["posted_ns"] - found.flows.arrival_ns
    assert waited.max() > 1000
    times = found.messages["completed_ns"] - found.flows.arrival_ns
    assert found.summary()["fct_p99_ns"] in times
    assert (times / found.flows.alone_ns >= 1).all()


def test_a_run_that_failed_has_figures_of_what_was_delivered():
    summary = run(BUSY, "rc", "deadline: 700us\n").summary()
    assert summary["verdict"] == "failed"
    assert 0 < summary["measured"] < summary["delivered"] < summary["messages"]
    assert summary["slowdown_p99"] >= 1
    nothing = run(BUSY, "rc", "deadline: 1us\n").summary()
    assert nothing["slowdown"] is nothing["slowdown_p50"] is None
    assert nothing["offered_load"] > 0.59


def test_a_job_has_the_figures_that_it_has_without_the_other():
    """On a star other hosts' flows do not meet its own."""
    job = f"{{kind: open-loop, {BUSY}, hosts: [h1, h2]}}"
    other = "{kind: incast, bytes: 1MiB, hosts: [h3, h4]}"
    alone = f"{{name: a, workload: {job}}}"
    found = []
    for jobs in (f"[{alone}]", f"[{{name: b, workload: {other}}}, {alone}]"):
        made = of(
            f"name: x\ntopology: {STAR}\ntransports: [rc]\nworkload: {{kind: jobs, jobs: {jobs}}}\n"
        )
        summary = virtual.run(made, made.transports[0], 1, lambda _: None).summary()
        found.append(summary["jobs"]["a"])
        _, lines = workload_table.lines([summary])
        assert "a: p99 slowdown" in [line.title for line in lines]
    assert found[0] == found[1]
    assert found[0]["slowdown_p99"] > 1


def of_jobs(*jobs, more=""):
    """A run of jobs over RC, each written as `name: workload`."""
    listed = ", ".join(f"{{name: {name}, workload: {workload}}}" for name, workload in jobs)
    made = of(
        f"name: x\ntopology: {STAR}\ntransports: [rc]\n"
        f"workload: {{kind: jobs, jobs: [{listed}]}}\n{more}"
    )
    return virtual.run(made, made.transports[0], 1, lambda _: None)


FIGURES_OF_FLOWS = (*(key for key, each in FIGURES.items() if each.samples in (MESSAGES, FLOWS)),
                    "slowdown", "measured")  # fmt: skip


def test_open_loop_traffic_as_a_job_is_measured_as_without_a_job():
    """From the arrival, without the warm-up, with its slowdown: also in the figures of the run."""
    run = of_jobs(("a", f"{{kind: open-loop, {BUSY}}}"), more="depth: 1\n")
    summary = run.summary()
    found = {key: summary[key] for key in FIGURES_OF_FLOWS}
    assert found == {key: summary["jobs"]["a"][key] for key in FIGURES_OF_FLOWS}
    assert summary["measured"] < summary["delivered"]
    assert run.flows.arrival_ns.tolist() != run.messages["posted_ns"].tolist()
    assert expect.judged(expect.gates({"slowdown_p99": "> 1"}), [summary])[0].passed


def test_messages_of_other_jobs_have_times_but_no_slowdown():
    incast = "{kind: incast, bytes: 1MiB, hosts: [h3, h4]}"
    flows = f"{{kind: open-loop, {BUSY}, hosts: [h1, h2]}}"
    run = of_jobs(("b", incast), ("a", flows))
    summary, jobs = run.summary(), run.jobs
    assert summary["slowdown"] == jobs["a"]["slowdown"]
    assert summary["slowdown_p99"] == jobs["a"]["slowdown_p99"]
    assert summary["measured"] == jobs["a"]["measured"] + jobs["b"]["measured"]
    assert run.compared.sum() == jobs["a"]["measured"] < summary["measured"]
    posted = run.messages["posted_ns"]
    others = run.messages["source"] >= 2
    assert jobs["b"]["measured"] == others.sum() > 0
    assert (run.flows.arrival_ns[others] == posted[others]).all()
    assert jobs["b"]["slowdown"] is None


def test_few_flows_are_marked_though_other_jobs_have_many_messages():
    incast = "{kind: incast, bytes: 1MiB, message: 4KiB, hosts: [h3, h4]}"
    few = "{kind: open-loop, load: 20%, sizes: [50kB], duration: 1ms, hosts: [h1, h2]}"
    summary = of_jobs(("b", incast), ("a", few)).summary()
    assert summary["measured"] > 100 > FLOWS.count(summary) > 0
    assert {"slowdown_p99"} == {key for key in few_samples(summary) if "slowdown" in key}
    [cell] = [each.cells[0] for each in workload_table.lines([summary])[1]
              if each.title == "p99 slowdown"]  # fmt: skip
    assert cell.endswith(f"* (n {FLOWS.count(summary)})")


def test_runs_of_which_one_has_no_flows_are_one_table(tmp_path):
    """A user's policy may end its process: that run knows no arrivals."""
    whole = run(BUSY, "rc")
    broken = dataclasses.replace(whole, transport="mine", flows=None, problems=["ended"])
    for runs in ((whole, broken), (broken, whole)):
        directory = RunDirectory.create("x", under=tmp_path)
        workload_record.write(directory, runs)
        columns = pq.read_table(directory.path / "messages.parquet").to_pydict()
        rows = [at for at, name in enumerate(columns["transport"]) if name == "rc"]
        arrivals = [columns["arrival_ns"][at] for at in rows]
        assert arrivals == whole.flows.arrival_ns.tolist()
        after = [columns["after_warm_up"][at] for at in rows]
        assert after == whole.flows.measured.tolist()
        assert False in after


def test_a_run_without_deliveries_has_its_arrivals():
    nothing = run(BUSY, "rc", "deadline: 1us\n")
    assert not len(nothing.done)
    assert (nothing.flows.arrival_ns >= 0).all()
    assert (nothing.flows.alone_ns == NEVER_NS).all()


def test_percentiles_of_few_samples_are_marked():
    found = run(SPARSE.replace("100ms", "16ms"))
    row = found.summary()
    assert row["measured"] < 100
    assert {"slowdown_p99", "fct_p99_ns"} <= set(found.document()["few_samples"])
    _, lines = workload_table.lines([row])
    cells = {line.title: line.cells[0] for line in lines}
    assert cells["p99 slowdown"].endswith(f"* (n {row['measured']})")
    assert not cells["p50 slowdown"].endswith("*")
    [few] = [each["n"] for each in row["slowdown"] if each["size_class"] == "<=10kB"]
    assert cells["p99 slowdown, <=10kB"].endswith(f"* (n {few})")
    assert "p99 slowdown, <=10MB" not in cells


def test_other_workloads_have_none():
    made = of(
        f"name: x\ntopology: {STAR}\ntransports: [rc]\nworkload: {{kind: incast, bytes: 1MiB}}\n"
    )
    found = virtual.run(made, made.transports[0], 1, lambda _: None)
    assert found.summary()["slowdown"] is found.summary()["offered_load"] is None
    assert found.document()["few_samples"] == ["fct_p99_ns", "fct_p999_ns"]
    _, lines = workload_table.lines([found.summary()])
    assert not [line.title for line in lines if "slowdown" in line.title]


def test_a_sweep_s_columns_take_the_figures():
    summary = run(BUSY).summary()
    for name in ("measured", "offered_load", "slowdown_p50", "slowdown_p99", "slowdown"):
        assert fits(columns()[name], summary[name])
    empty = [{"size_class": "<=10kB", "n": 0, "p50": None, "p99": None}]
    assert fits(columns()["slowdown"], empty)
    for wrong in ([{**empty[0], "n": 1}], [{"n": 0}], {}, [{**empty[0], "p50": "1"}]):
        assert not fits(columns()["slowdown"], wrong)


def test_the_table_has_arrivals_and_times_alone(tmp_path):
    found = experiment_run.run(experiment(BUSY, "csa_ud"), Silent(), under=tmp_path)
    columns = pq.read_table(found.directory / "messages.parquet")
    [one] = found.runs
    assert columns["arrival_ns"].to_pylist() == one.flows.arrival_ns.tolist()
    assert columns["alone_ns"].to_pylist() == one.flows.alone_ns.tolist()
