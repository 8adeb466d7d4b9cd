# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs into tables: what is in which row and column."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from softroce_lab import topology
from softroce_lab.experiment import record
from softroce_lab.experiment.hosts.journal import COMPLETION, EVENT
from softroce_lab.experiment.transfer import TransferRun
from softroce_lab.faults import profile
from softroce_lab.faults.resolve import arm
from softroce_lab.telemetry.drops import DROP, KIND_NONE
from softroce_lab.telemetry.fidelity import Fidelity
from softroce_lab.telemetry.links import LinkFigures, StageFigures
from softroce_lab.telemetry.rundir import RunDirectory

EPOCH_NS = 1_000_000
PLAN = arm(topology.load("path"), profile.load("spine-loss-1pct"))
RULE = PLAN.faults[0]
LINKS = [
    LinkFigures(number, f"{near.node}->{far.node}", 10 * number, number, 9 * number, 0, 0)
    for link in PLAN.links
    for number, near, far in link.halves
]


def completions(*messages):
    rows = np.zeros(len(messages), COMPLETION)
    for row, message in zip(rows, messages, strict=True):
        row["message"], row["posted_ns"], row["completed_ns"] = message, 100 + message, 900
        row["bytes"], row["packets"], row["resent"], row["duplicates"] = 1000, 5, message, 40
    return rows


def acts(*times_ns):
    return np.array([(at, "resend", 0, 1, 7, 3) for at in times_ns], EVENT)


def drops(*times_ns, kind=0):
    rows = np.zeros(len(times_ns), DROP)
    for row, at in zip(rows, times_ns, strict=True):
        row["time_ns"], row["directed_link"], row["rule_id"] = at, RULE.directed_link, RULE.rule_id
        row["src"], row["dst"], row["sport"] = 0x0A000001, 0x0A000002, 0xC003
        row["message"], row["index"], row["attempt"], row["kind"] = 4, 55, 1, kind
        row["psn"], row["qpn"], row["effect"], row["step"] = 77, 0x11, 1, 2
    return rows


def transfer_run(transport, *, sent=(), received=(), events=None, dropped=None):
    return TransferRun(
        transport=transport,
        epoch_ns=EPOCH_NS,
        end_ns=2 * EPOCH_NS,
        sent={},
        received={},
        sent_messages=completions(*sent),
        received_messages=completions(*received),
        events=events or {},
        stats={"h1": {"counters": {"port_xmit_packets": 12}}},
        recorded=True,
        injections=drops() if dropped is None else dropped,
        links=LINKS,
        ports=[],
        stage=StageFigures(fifo=True, cpu_share=0.0, lost=0),
        idle_rules=[],
        faults=list(PLAN.faults),
        fidelity=Fidelity(()),
    )


@pytest.fixture
def written(tmp_path):
    """A function that writes runs, and reads one of the tables."""
    directory = RunDirectory.create("test", under=tmp_path)

    def write(name, *runs):
        record.write(directory, runs)
        return pq.read_table(directory.path / f"{name}.parquet").to_pylist()

    write.folder = directory.path
    return write


def test_messages_of_both_ends_are_one_row_in_order(written):
    run = transfer_run("csa_ud", sent=(2, 0, 1), received=(1, 2, 0))
    rows = written("messages", run)
    assert [row["message"] for row in rows] == [0, 1, 2]
    assert rows[2] == {
        "transport": "csa_ud",
        "message": 2,
        "bytes": 1000,
        "packets": 5,
        "resent": 2,
        "duplicates": 40,
        "status": 0,
        "posted_ns": 102,
        "first_sent_ns": 0,
        "first_received_ns": 0,
        "received_ns": 900,
        "completed_ns": 900,
    }


def test_runs_follow_each_other(written):
    runs = [transfer_run(name, sent=(0, 1), received=(0, 1)) for name in ("csa_ud", "ud_rto")]
    rows = written("messages", *runs)
    assert [row["transport"] for row in rows] == ["csa_ud"] * 2 + ["ud_rto"] * 2


def test_a_drop_names_its_link_rule_and_packet(written):
    (row,) = written("events", transfer_run("csa_ud", dropped=drops(EPOCH_NS + 5)))
    (name,) = (link.name for link in LINKS if link.directed_link == RULE.directed_link)
    assert row == {
        "transport": "csa_ud",
        "time_ns": 5,
        "source": "injector",
        "event": "drop",
        "link": name,
        "rule": RULE.rule,
        "packet_kind": "data",
        "operation": 0,
        "step": 2,
        "message": 4,
        "index": 55,
        "attempt": 1,
        "packets": 1,
        "src": "10.0.0.1",
        "dst": "10.0.0.2",
        "sport": 0xC003,
        "psn": 77,
        "qpn": 0x11,
    }


@pytest.mark.parametrize(
    ("kind", "name"), [(0, "data"), (1, "control"), (2, "report"), (KIND_NONE, "other")]
)
def test_kinds_of_packets(written, kind, name):
    (row,) = written("events", transfer_run("csa_ud", dropped=drops(EPOCH_NS, kind=kind)))
    assert row["packet_kind"] == name


def test_events_are_in_the_order_of_time_within_a_transport(written):
    events = {"h1": acts(30, 10), "h2": acts(20)}
    runs = [
        transfer_run(name, events=events, dropped=drops(EPOCH_NS + 25))
        for name in ("ud_rto", "csa_ud")
    ]
    rows = written("events", *runs)
    one = [(10, "h1", "resend"), (20, "h2", "resend"), (25, "injector", "drop"),
           (30, "h1", "resend")]  # fmt: skip
    told = [(row["transport"], row["time_ns"], row["source"], row["event"]) for row in rows]
    assert told == [(name, *each) for name in ("csa_ud", "ud_rto") for each in one]
    assert {(row["step"], row["packets"]) for row in rows if row["event"] == "resend"} == {(1, 3)}


def test_a_run_without_events_has_the_columns(written):
    assert written("events", transfer_run("csa_ud")) == []
    assert "directed_link" in (written.folder / "links.json").read_text()


def test_last_counters_by_transport_and_host(written):
    written("messages", transfer_run("csa_ud"), transfer_run("ud_rto"))
    document = json.loads((written.folder / "stats.json").read_text())
    assert document["schema_version"] == 1
    assert set(document["runs"]) == {"csa_ud", "ud_rto"}
    assert document["runs"]["csa_ud"]["h1"]["counters"] == {"port_xmit_packets": 12}


def test_links_by_transport(written):
    written("messages", transfer_run("csa_ud"), transfer_run("ud_rto"))
    runs = json.loads((written.folder / "links.json").read_text())["runs"]
    assert set(runs) == {"csa_ud", "ud_rto"}
    assert [link["name"] for link in runs["csa_ud"]] == [link.name for link in LINKS]
    assert runs["csa_ud"][3]["sent"] == 30
    assert not (written.folder / "trace.pcapng").exists()
