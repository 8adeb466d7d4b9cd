# SPDX-License-Identifier: GPL-2.0-or-later
"""A run as a trace: slices of messages, losses, arrows to retransmissions, in valid pairs."""

import collections
import json
import shutil

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode
from softroce_lab.results.recorded import Recorded


@pytest.fixture(scope="module")
def trace(ring_run, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "irn.json"
    found = CliRunner().invoke(
        app, ["results", "export", str(ring_run), "--run", "irn/1", "-o", str(path)]
    )
    assert found.exit_code == 0
    return json.loads(path.read_text())


def of(trace, phase):
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def test_each_message_is_a_slice(trace, ring_run):
    recorded = Recorded(ring_run)
    messages = recorded.table("messages", recorded.run("irn/1"))
    begun, ended = ({e["id"]: e["ts"] for e in of(trace, phase)} for phase in "be")
    assert len(begun) == len(messages["bytes"])
    for row, posted in enumerate(messages["posted_ns"].tolist()):
        assert begun[row] == posted / 1000
        assert ended[row] == messages["completed_ns"][row] / 1000
    hosts = {*messages["source"], *messages["destination"]}
    assert set(processes(trace).values()) == {*hosts, "links"}


def test_each_arrow_leads_from_a_loss_to_a_later_transmission(trace, ring_run):
    run = Recorded(ring_run).run("irn/1")
    again = [e for e in of(trace, "X") if e["cat"] == "retransmission"]
    assert len(again) == run["retransmitted"] > 0
    starts, ends = ({e["id"]: e for e in of(trace, phase)} for phase in "sf")
    assert starts.keys() == ends.keys()
    assert starts
    losses = {(e["pid"], e["ts"]) for e in of(trace, "i")}
    sent = {(e["pid"], e["ts"]) for e in again}
    for number, start in starts.items():
        assert (start["pid"], start["ts"]) in losses
        assert (ends[number]["pid"], ends[number]["ts"]) in sent
        assert start["ts"] < ends[number]["ts"]


def counters(trace, name):
    return [event for event in of(trace, "C") if event["name"] == name]


def processes(trace):
    """Their names, by number."""
    named = [event for event in of(trace, "M") if event["name"] == "process_name"]
    return {event["pid"]: event["args"]["name"] for event in named}


def test_the_counter_of_each_host_ends_at_zero(trace):
    last = {}
    for event in counters(trace, "messages outstanding"):
        assert event["args"]["messages"] >= 0
        last[event["pid"]] = event["args"]["messages"]
    assert last
    assert collections.Counter(last.values()).keys() == {0}


def test_the_counter_changes_when_messages_begin_and_end(trace):
    ends = {e["ts"] for phase in "be" for e in of(trace, phase)}
    assert {e["ts"] for e in counters(trace, "messages outstanding")} == ends


def test_queues_and_what_is_in_flight_are_counters(trace, ring_run):
    """As samples.parquet has them: of each link in one process, of each host in its own."""
    recorded = Recorded(ring_run)
    samples = recorded.table("samples", recorded.run("irn/1"))
    rows = set(zip(*(samples[name].tolist() for name in ("time_ns", "figure", "at", "value")),
                   strict=True))  # fmt: skip
    names, shown = processes(trace), set()
    for figure, title, unit in (("in_flight_packets", "packets in flight", "packets"),
                                ("window_packets", "window", "packets")):  # fmt: skip
        for event in counters(trace, title):
            shown.add((event["ts"], figure, names[event["pid"]], event["args"][unit]))
    queues = [each for each in of(trace, "C") if each["name"].startswith("queue of ")]
    assert {names[each["pid"]] for each in queues} == {"links"}
    for event in queues:
        link = event["name"].removeprefix("queue of ")
        shown.add((event["ts"], "queue_bytes", link, event["args"]["bytes"]))
    assert shown == {(time_ns / 1000, *rest) for time_ns, *rest in rows}
    assert {figure for _, figure, _, _ in shown} == {"queue_bytes", "in_flight_packets",
                                                     "window_packets"}  # fmt: skip


def test_without_samples_there_are_no_such_counters(ring_run, tmp_path):
    """As on the real clock."""
    copy = shutil.copytree(ring_run, tmp_path / "copy")
    (copy / "samples.parquet").unlink()
    path = tmp_path / "trace.json"
    found = CliRunner().invoke(
        app, ["results", "export", str(copy), "--run", "rc/1", "-o", str(path)]
    )
    assert found.exit_code == 0
    assert {e["name"] for e in of(json.loads(path.read_text()), "C")} == {"messages outstanding"}


def test_what_cannot_be_written(ring_run, tmp_path):
    path = tmp_path / "none" / "trace.json"
    found = CliRunner().invoke(app, ["results", "export", str(ring_run), "-o", str(path)])
    assert found.exit_code == ExitCode.USAGE
    assert "cannot write" in found.stderr
