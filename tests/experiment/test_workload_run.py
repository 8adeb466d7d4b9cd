# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run came to: the table of messages, the verdict, the figures, the files."""

import itertools
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from softroce_lab.errors import ibv_wc_status
from softroce_lab.experiment import workload_record, workload_table
from softroce_lab.experiment.figure_table import few_samples
from softroce_lab.experiment.messages import NEVER_NS, NOT_DONE, open_ends, table
from softroce_lab.experiment.workload_run import (
    Flows,
    WorkloadRun,
)
from softroce_lab.telemetry.repairs import REPAIR
from softroce_lab.telemetry.rundir import RunDirectory
from softroce_lab.workloads.flows import Incast
from softroce_lab.workloads.operations import Operations
from softroce_lab.workloads.schedule import Compute, Send

DEAD = int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR)


def logged(rounds=2):
    """Incasts of 1000 bytes from hosts 1 and 2 to host 0, all well."""
    schedule = Operations(Incast((0, 1, 2), 1000, 1000), rounds).schedule()
    ends = {host: open_ends(len(vertices)) for host, vertices in schedule.of.items()}
    for host, vertices in schedule.of.items():
        for number, vertex in enumerate(vertices):
            if isinstance(vertex, Compute):
                continue
            begin = vertex.message.key[0] * 1000
            end = begin + 100 * vertex.message.source
            if isinstance(vertex, Send):
                ends[host][number] = (0, 2, 1, 0, begin, begin + 1, end)
            else:
                ends[host][number] = (0, 2, 0, 3, 0, begin + 50, end - 5)
    return table(schedule, ends)


def of(messages, **more):
    links = [
        {
            "name": "s1->h1",
            "injected_drops": 3,
            "emulator_drops": 0,
            "wire": {"dropped_by_queue": 2, "marked": 1, "trimmed": 0},
        },
        {"name": "h1->s1", "injected_drops": 1, "emulator_drops": 0, "wire": None},
    ]
    fields = {
        "transport": "rc",
        "protocol": "rc",
        "congestion_control": "bdp",
        "seed": 4,
        "clock": "virtual",
        "hosts": ("h1", "h2", "h3"),
        "messages": messages,
        "end_ns": 5000,
        "links": links,
        "counters": {"h1": {"rx_duplicate": 5}, "h2": {"tx_data": 7, "tx_retransmitted": 1}},
    }
    return WorkloadRun(**fields | more)


def test_a_run_that_went_well():
    row = of(logged()).summary()
    expected = {
        "verdict": "passed", "reasons": [], "messages": 4, "delivered": 4, "bytes": 4000,
        "makespan_ns": 1200, "goodput_bps": 4000 * 8 * 10**9 // 1200, "fct_p50_ns": 100,
        "fct_p99_ns": 200, "operation_p50_ns": 200, "packets_sent": 7, "retransmitted": 1,
        "spurious_retransmissions": 5, "injected_drops": 4, "queue_drops": 2, "marked": 1,
    }  # fmt: skip
    assert {key: row[key] for key in expected} == expected
    json.dumps(row)


def test_flows_complete_since_they_arrived_and_not_since_they_were_posted():
    """Posts at 0, 0, 1000 and 1000 ns, completions 100 and 200 ns later."""
    arrival_ns = np.array([0, -7, 400, 990])
    flows = Flows(arrival_ns, np.array([1, 202, 695, 5]))
    after = np.array([False, True, True, True])
    run = of(logged(), flows=flows, after_warm_up=after)
    assert run.completion_times_ns().tolist() == [207, 700, 210]
    assert run.slowdowns().tolist() == [1.0, 1.0, 41.0]
    summary = run.summary()
    assert (summary["measured"], summary["fct_p50_ns"], summary["fct_p99_ns"]) == (3, 210, 700)


def test_what_never_happened():
    receiver, sender = open_ends(4), open_ends(2)
    receiver[3] = (DEAD, 0, 0, 0, 5, NEVER_NS, 9)
    sender[0] = (DEAD, 0, 0, 0, 5, 6, 9)
    found = table(Incast((0, 1, 2), 1000, 600).schedule(), {0: receiver, 1: sender})
    assert found["status"].tolist() == [DEAD, NOT_DONE, NOT_DONE, DEAD]
    assert found["received_ns"].tolist() == [NEVER_NS] * 4
    run = of(found)
    assert run.verdict == "failed"
    assert run.reasons == [
        "2 of 4 messages: IBV_WC_RETRY_EXC_ERR, the first 0/0/0 from h2 to h1",
        "2 of 4 messages: not delivered, the first 0/0/1 from h2 to h1",
    ]
    row = run.summary()
    assert (row["makespan_ns"], row["goodput_bps"], row["fct_p50_ns"]) == (0, 0, None)
    assert row["operation_p50_ns"] is None


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"problems": ["the deadline of 1 s passed"]}, "the deadline of 1 s passed"),
        ({"verified": False}, "buffers differ from what they must be"),
        ({"verified": False, "problems": ["host 1: 3 bytes"]}, "host 1: 3 bytes"),
    ],
)
def test_other_ways_to_fail(more, reason):
    run = of(logged(), **more)
    assert run.reasons == [reason]
    assert run.verdict == "failed"
    assert of(logged(), verified=True).verdict == "passed"


def test_the_run_directory(tmp_path):
    events = {"time_ns": np.array([9, 3]), "event": np.array(["drop", "nack"])}
    runs = [of(logged()), of(logged(), seed=5, transport="csa_ud", events=events)]
    directory = RunDirectory.create("x", under=tmp_path)
    with directory.growing_table("events") as add:
        for part in itertools.chain(*map(workload_record.events, runs)):
            add(part)
    workload_record.write(directory, runs)
    messages = pq.read_table(directory.path / "messages.parquet").to_pydict()
    assert messages["transport"] == ["rc"] * 4 + ["csa_ud"] * 4
    assert messages["seed"] == [4] * 4 + [5] * 4
    assert messages["source"][:2] == ["h2", "h3"]
    assert messages["operation"][:4] == [0, 0, 1, 1]
    reported = pq.read_table(directory.path / "events.parquet").to_pydict()
    assert reported["event"] == ["nack", "drop"]
    assert reported["seed"] == [5, 5]
    assert reported["link"] == ["", ""]
    links = json.loads((directory.path / "links.json").read_text())["runs"]
    assert list(links) == ["rc/4", "csa_ud/5"]
    stats = json.loads((directory.path / "stats.json").read_text())["runs"]
    assert stats["rc/4"]["h2"]["counters"]["tx_data"] == 7


def test_the_first_losses_of_a_run_are_in_its_directory(tmp_path):
    """Of the data packets that were lost when they were sent first, of that run alone."""
    rows = [("drop", "data", 0, 7), ("drop", "data", 1, 8), ("drop", "control", 0, 9),
            ("corrupt", "data", 0, 10), ("drop", "data", 0, 7)]  # fmt: skip
    names = ("event", "packet_kind", "attempt", "index")
    events = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
    events |= {"time_ns": np.arange(5), "message": np.full(5, 3, dtype=np.uint32)}
    lossy, other = of(logged(), seed=2**64 - 1, events=events), of(logged(), seed=1)
    directory = RunDirectory.create("x", under=tmp_path)
    with directory.growing_table("events") as add:
        for part in itertools.chain(*map(workload_record.events, (other, lossy))):
            add(part)
    assert workload_record.first_losses(directory.path, lossy) == {(3, 7): 2}
    assert not workload_record.first_losses(directory.path, other)


# --- The table -------------------------------------------------------------------------------


def cells(rows):
    names, lines = workload_table.lines(rows)
    return names, {line.title: line.cells for line in lines}


@pytest.mark.parametrize(
    ("width", "blocks"), [(80, [4, 2]), (200, [6]), (50, [2, 2, 2]), (1, [1] * 6)]
)
def test_columns_that_do_not_fit_stand_below(width, blocks):
    rows = [of(logged(), transport=f"transport{n}").summary() for n in range(6)]
    names, lines = workload_table.lines(rows)
    found = list(workload_table.beside(names, lines, width))
    assert [len(each) for each in found] == blocks
    assert [at for each in found for at in each] == list(range(6))


def test_percentiles_of_too_few_messages_are_marked():
    """The fixture has four messages."""
    run = of(logged())
    assert run.document()["few_samples"] == ["fct_p99_ns", "fct_p999_ns"]
    _, found = cells([run.summary()])
    assert not found["p50 message completion"][0].endswith("*")
    assert found["p99 message completion"][0].endswith("*")
    enough = run.summary() | {"measured": 100}
    assert few_samples(enough) == ["fct_p999_ns"]
    _, found = cells([enough, enough])
    assert not found["p99 message completion"][0].endswith("*")
    assert found["p99.9 message completion"][0].endswith("*")


def test_several_seeds_are_taken_together():
    row = of(logged()).summary()
    rows = [row | {"seed": n, "makespan_ns": 1000 * n, "verified": True} for n in (1, 2, 3)]
    assert cells(rows)[1]["makespan"] == ["2 us [1 us, 3 us]"]
    rows[1] |= {"verdict": "failed", "delivered": 3, "verified": False}
    _, found = cells(rows)
    assert found["retransmitted"] == ["3"]
    assert found["verdict"] == ["FAILED 1 of 3"]
    assert found["messages delivered"] == ["11 of 12"]
    assert found["verified, every byte"] == ["NO"]
    assert cells(rows[1:2])[1]["verdict"] == ["FAILED"]


def test_a_run_that_failed_has_no_makespan():
    """What was delivered in no time before the rest was given up is no figure of the work."""
    row = of(logged()).summary()
    failed = row | {"verdict": "failed", "makespan_ns": 7, "goodput_bps": 10**12}
    failed |= {"operation_p50_ns": None}
    times = "makespan", "p50 operation", "goodput, all hosts"
    found = cells([failed])[1]
    assert [found.get(title) for title in times] == [["-"], None, ["-"]]
    found = cells([row, failed | {"seed": 2}, failed | {"transport": "csa_ud"}])[1]
    assert [found[title][0] for title in times] == [cells([row])[1][title][0] for title in times]
    assert [found[title][1] for title in times] == ["-", "-", "-"]


def test_repairs_that_never_came_are_counted_and_those_not_recorded_leave_no_percentile():
    repairs = np.zeros(4, REPAIR)
    repairs["dropped_ns"] = 100
    repairs["arrived_ns"] = [110, 130, -1, 120]
    row = of(logged(), repairs=repairs).summary()
    assert [row[key] for key in ("repairs", "unrepaired")] == [3, 1]
    assert [row[key] for key in ("repair_p50_ns", "repair_p99_ns")] == [20, 30]
    row = of(logged(), repairs=repairs, facts={"repairs_not_recorded": 1}).summary()
    assert [row[key] for key in ("repair_p50_ns", "repair_p99_ns")] == [None, None]
