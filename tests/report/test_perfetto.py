# SPDX-License-Identifier: GPL-2.0-or-later
"""A run as a trace: slices of messages, losses, arrows to retransmissions, in valid pairs."""

import collections
import json

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode
from softroce_lab.report.recorded import Recorded


@pytest.fixture(scope="module")
def trace(ring_run, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "irn.json"
    found = CliRunner().invoke(
        app, ["export", str(ring_run), "--run", "irn/1", "--perfetto", str(path)]
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
    hosts = {e["args"]["name"] for e in of(trace, "M") if e["name"] == "process_name"}
    assert hosts == {*messages["source"], *messages["destination"]}


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


def test_the_counter_of_each_host_ends_at_zero(trace):
    last = {}
    for event in of(trace, "C"):
        assert event["args"]["messages"] >= 0
        last[event["pid"]] = event["args"]["messages"]
    assert last
    assert collections.Counter(last.values()).keys() == {0}


def test_the_counter_changes_when_messages_begin_and_end(trace):
    ends = {e["ts"] for phase in "be" for e in of(trace, phase)}
    assert {e["ts"] for e in of(trace, "C")} == ends


def test_what_cannot_be_written(ring_run, tmp_path):
    path = tmp_path / "none" / "trace.json"
    found = CliRunner().invoke(app, ["export", str(ring_run), "--perfetto", str(path)])
    assert found.exit_code == ExitCode.FAILED
    assert "cannot write" in found.stderr
