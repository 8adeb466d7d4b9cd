# SPDX-License-Identifier: GPL-2.0-or-later
"""Slowdown of open-loop traffic, and what its runs say."""

import dataclasses

import numpy as np
import pyarrow.parquet as pq
import pytest

from softroce_lab.experiment import virtual, workload_record
from softroce_lab.experiment.figure_table import (
    FIGURES,
    FLOWS,
    MESSAGES,
    SIZE_CLASSES,
)
from softroce_lab.experiment.gates import expect
from softroce_lab.telemetry.rundir import RunDirectory
from softroce_lab.transports import registry
from tests.experiment.kinds.examples import of

STAR = "{generator: {kind: star, hosts: 4, access: {rate: 100Gbit, delay: 1us}}}"
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
@pytest.mark.parametrize("size", [1, 2009, 300_000])
def test_a_single_flow_has_a_slowdown_of_1(transport, size):
    """All of the load is this one flow, and with this seed it arrives after the warm-up."""
    time_ns = max(4 * size, 100_000)
    load = f"load: {4 * size / time_ns:.8f}%, duration: {time_ns}ns"
    made = experiment(f"{load}, sizes: [{size}B], hosts: 2", transport)
    found = virtual.run(made, made.transports[0], SEED, lambda _: None)
    assert found.verdict == "passed", found.reasons
    assert len(found.messages) == found.summary()["measured"] == 1
    assert found.slowdowns().tolist() == [1.0]


@pytest.mark.parametrize("transport", ["csa_ud", "rc", "sdr_ec"])
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


def test_the_wait_for_a_post_counts():
    """With one send outstanding to a peer, flows wait for those before them."""
    found = run(BUSY, "rc", "depth: 1\n")
    waited = found.messages["posted_ns"] - found.flows.arrival_ns
    assert waited.max() > 1000
    times = found.messages["completed_ns"] - found.flows.arrival_ns
    assert found.summary()["fct_p99_ns"] in times
    assert (times / found.flows.alone_ns >= 1).all()


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


def test_runs_of_which_one_has_no_flows_are_one_table(tmp_path):
    """A user's policy may end its process: that run knows no arrivals."""
    whole = run(BUSY, "rc")
    broken = dataclasses.replace(
        whole, transport="mine", flows=None, after_warm_up=None, problems=["ended"]
    )
    for runs in ((whole, broken), (broken, whole)):
        directory = RunDirectory.create("x", under=tmp_path)
        workload_record.write(directory, runs)
        columns = pq.read_table(directory.path / "messages.parquet").to_pydict()
        rows = [at for at, name in enumerate(columns["transport"]) if name == "rc"]
        arrivals = [columns["arrival_ns"][at] for at in rows]
        assert arrivals == whole.flows.arrival_ns.tolist()
        after = [columns["after_warm_up"][at] for at in rows]
        assert after == whole.after_warm_up.tolist()
        assert False in after
