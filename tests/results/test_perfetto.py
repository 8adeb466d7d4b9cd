# SPDX-License-Identifier: GPL-2.0-or-later
"""A run as a trace: slices of messages, losses, arrows to retransmissions, in valid pairs."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.results.recorded import Recorded


def export(directory, run, path):
    line = ["results", "export", str(directory), "--run", run, "-o", str(path)]
    assert CliRunner().invoke(app, line).exit_code == 0
    return json.loads(path.read_text())["traceEvents"]


@pytest.fixture(scope="module")
def trace(ring_run, tmp_path_factory):
    return export(ring_run, "irn/1", tmp_path_factory.mktemp("trace") / "irn.json")


def of(trace, phase):
    return [event for event in trace if event["ph"] == phase]


def processes(trace):
    """Their names, by number."""
    named = [event for event in of(trace, "M") if event["name"] == "process_name"]
    return {event["pid"]: event["args"]["name"] for event in named}


def test_each_message_is_a_slice(trace, ring_run):
    recorded = Recorded(ring_run)
    messages = recorded.table("messages", recorded.run("irn/1"))
    begun, ended = ({e["id"]: e["ts"] for e in of(trace, phase)} for phase in "be")
    assert [*begun.values()] == [each / 1000 for each in messages["posted_ns"].tolist()]
    assert [*ended.values()] == [each / 1000 for each in messages["completed_ns"].tolist()]
    hosts = {*messages["source"], *messages["destination"]}
    assert set(processes(trace).values()) == {*hosts, "links"}
    counts = [each for each in of(trace, "C") if each["name"] == "messages outstanding"]
    assert {each["ts"] for each in counts} == {*begun.values(), *ended.values()}
    last = {each["pid"]: each["args"]["messages"] for each in counts}
    assert min(each["args"]["messages"] for each in counts) == 0
    assert set(last.values()) == {0}


def test_each_arrow_leads_from_a_loss_to_a_later_transmission(trace, ring_run):
    again = [e for e in of(trace, "X") if e["cat"] == "retransmission"]
    assert len(again) == Recorded(ring_run).run("irn/1")["retransmitted"] > 0
    starts, ends = ({e["id"]: e for e in of(trace, phase)} for phase in "sf")
    assert starts.keys() == ends.keys()
    assert starts
    losses = {(e["pid"], e["ts"]) for e in of(trace, "i")}
    sent = {(e["pid"], e["ts"]) for e in again}
    for number, start in starts.items():
        assert (start["pid"], start["ts"]) in losses
        assert (ends[number]["pid"], ends[number]["ts"]) in sent
        assert start["ts"] < ends[number]["ts"]


def test_queues_and_what_is_in_flight_are_counters(trace, ring_run, tmp_path):
    """As samples.parquet has them: of each link in one process, of each host in its own."""
    recorded = Recorded(ring_run)
    samples = recorded.table("samples", recorded.run("irn/1"))
    columns = (samples[name].tolist() for name in ("time_ns", "figure", "at", "value"))
    rows = {(time_ns / 1000, *rest) for time_ns, *rest in zip(*columns, strict=True)}
    figures = {"packets in flight": "in_flight_packets", "window": "window_packets"}
    names, shown = processes(trace), set()
    for event in of(trace, "C"):
        (value,) = event["args"].values()
        at, where = event["ts"], names[event["pid"]]
        if event["name"] in figures:
            shown.add((at, figures[event["name"]], where, value))
        elif event["name"].startswith("queue of "):
            assert where == "links"
            shown.add((at, "queue_bytes", event["name"].removeprefix("queue of "), value))
    assert shown == rows
    assert {figure for _, figure, _, _ in shown} == {*figures.values(), "queue_bytes"}
    copy = shutil.copytree(ring_run, tmp_path / "copy")
    (copy / "samples.parquet").unlink()  # as on the real clock
    without = export(copy, "rc/1", tmp_path / "trace.json")
    assert {e["name"] for e in of(without, "C")} == {"messages outstanding"}
