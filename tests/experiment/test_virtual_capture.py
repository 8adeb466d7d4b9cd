# SPDX-License-Identifier: GPL-2.0-or-later
"""Captures on the virtual clock: what is in them, and that they account for every packet."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from softroce_lab.check import opcodes
from softroce_lab.errors import RunError
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec, virtual
from softroce_lab.experiment.capturing import Wanted
from softroce_lab.experiment.reporter import Silent
from softroce_lab.inputs import yaml_source
from softroce_lab.telemetry import capture_file
from softroce_lab.telemetry.packets import Has
from tests.two_switches import TOPOLOGY

TEXT = f"""\
name: captured
{TOPOLOGY}transports: [csa_ud]
workload: {{kind: point-to-point, bytes: 200kB, message: 40kB}}
faults: [{{name: loss, links: "s1<->s2", loss: random 5%}}]
deadline: 1s
"""
PACKETS = 5 * 20  # of all messages
FRAME_BYTES = 14 + 20 + 8 + 12 + 8 + 2048 + 4  # of a full one


def of(*changes):
    source = yaml_source.parse(TEXT, "captured.yaml")
    return spec.of(spec.with_overrides(source, [spec.parse_override(each) for each in changes]))


def captured(tmp_path, *changes, links=("*->*",), snap=0):
    wanted = Wanted(links, snap)
    return experiment_run.run(of(*changes), Silent(), under=tmp_path, capture=wanted).directory


def injected_events_of(directory):
    table = pq.read_table(directory / "events.parquet", filters=[("source", "=", "injector")])
    return table.to_pylist()


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return captured(tmp_path_factory.mktemp("runs"), "payload=verify")


def test_every_packet_of_every_link_is_there(directory):
    capture = capture_file.read(directory / "trace.pcapng")
    links = json.loads((directory / "links.json").read_text())["runs"]["csa_ud/1"]
    entered = {
        link["name"]: link["sent"] + link["injected_drops"] - link["wire"]["duplicated"]
        for link in links
    }
    counts = np.bincount(capture.packets["interface"], minlength=len(capture.interfaces))
    named = {each.name: int(counts[n]) for n, each in enumerate(capture.interfaces)}
    assert named == entered
    assert [each.received for each in capture.interfaces] == list(counts)
    assert {each.dropped for each in capture.interfaces} == {0}
    (run,) = json.loads((directory / "manifest.json").read_text())["runs"]
    assert (run["capture"]["file"], run["capture"]["snap_bytes"]) == ("trace.pcapng", 0)
    assert run["capture"]["captured"] == len(capture.packets)
    assert run["capture"]["missed"] == 0
    assert not capture.notes


def test_comments_are_the_events_at_the_nanosecond(directory):
    capture = capture_file.read(directory / "trace.pcapng")
    packets = capture.packets
    dropped = [each.startswith("dropped: random 5%, rule loss") for each in capture.comments]
    reported = np.array([*dropped, False])[packets["comment"]]  # -1: no comment
    others = [each for each, is_drop in zip(capture.comments, dropped, strict=True) if not is_drop]
    assert all(each.startswith("restored: packet ") for each in others)
    names = [each.name for each in capture.interfaces]
    seen = [
        (int(row["time_ns"]), names[row["interface"]], int(row["psn"]), int(row["destination_qp"]))
        for row in packets[reported]
    ]
    drops = [(e["time_ns"], e["link"], e["psn"], e["qpn"]) for e in injected_events_of(directory)]
    assert seen == drops
    assert len(drops) > 5


def test_a_capture_changes_nothing_but_itself(tmp_path, directory):
    plain = experiment_run.run(of("payload=verify"), Silent(), under=tmp_path).directory
    for name in ("messages.parquet", "events.parquet", "links.json", "stats.json"):
        assert (plain / name).read_bytes() == (directory / name).read_bytes()


def test_behind_a_flipped_bit_the_icrc_is_wrong(tmp_path):
    noise = "faults=[{name: noise, links: s1->s2, corrupt: 10%}]"
    transport = "transports=[{name: csa_ud, options: {parity: 0}}]"
    capture = capture_file.read(captured(tmp_path, noise, transport) / "trace.pcapng")
    packets = capture.packets
    names = np.array([each.name for each in capture.interfaces])[packets["interface"]]
    good = packets["has"] & Has.ICRC_GOOD != 0
    reported = packets["comment"] >= 0
    assert set(capture.comments) == {"corrupted: 10%, rule noise"}
    assert good[names != "s2->h2"].all()
    assert (~good).sum() == reported.sum() > 3
    assert set(names[reported]) == {"s1->s2"}


def test_a_comment_says_which_rule_cut_a_packet(tmp_path):
    trims = "faults=[{name: trims, links: s1->s2, cut: 10%, only: data}]"
    capture = capture_file.read(captured(tmp_path, trims) / "trace.pcapng")
    packets = capture.packets
    names = np.array([each.name for each in capture.interfaces])[packets["interface"]]
    assert set(capture.comments) == {"cut: 10% only data, rule trims"}
    assert set(names[packets["comment"] >= 0]) == {"s1->s2"}
    trimmed = packets["has"] & Has.TRIMMED != 0
    assert set(names[trimmed]) == {"s2->h2"}
    assert trimmed.sum() == (packets["comment"] >= 0).sum() > 3
    assert (packets["has"] & Has.ICRC_GOOD).all()


def test_marks_and_trims_are_in_the_frames(tmp_path):
    slow = "topology.links.1.rate=1Gbit limit 10 ecn 3 trim"
    found = captured(tmp_path, slow, "faults=[]", links=("s2->h2",))
    packets = capture_file.read(found / "trace.pcapng").packets
    (link,) = [
        link
        for link in json.loads((found / "links.json").read_text())["runs"]["csa_ud/1"]
        if link["name"] == "s1->s2"
    ]
    trimmed = packets["has"] & Has.TRIMMED != 0
    assert trimmed.sum() == link["wire"]["trimmed"] > 10
    assert set(packets["length"][trimmed].tolist()) == {FRAME_BYTES - 2008}
    marked = packets["traffic_class"] & 3 == 3
    assert marked.sum() == link["wire"]["marked"] > 3
    assert (packets["has"] & Has.ICRC_GOOD).all()


def test_a_file_for_each_run(tmp_path):
    two = "transports=[rc, {name: csa_ud, options: {parity: 0}, label: 'no parity'}]"
    found = captured(tmp_path, two, "seeds=2", links=("h1->s1",))
    files = {path.name for path in found.glob("*.pcapng")}
    assert files == {
        f"trace-{label}-{seed}.pcapng" for label in ("rc", "no%20parity") for seed in (1, 2)
    }
    runs = json.loads((found / "manifest.json").read_text())["runs"]
    assert {run["capture"]["file"] for run in runs} == files


def test_a_full_disk_is_said():
    wanted = Wanted(("h1->s1",), 0, Path("/dev/full"))
    experiment = of()
    with pytest.raises(RunError, match="cannot write /dev/full: No space left on device"):
        virtual.run(experiment, experiment.transports[0], 1, lambda _done: None, wanted)


@pytest.mark.parametrize(
    "transport", ["rc", "irn", "sdr_ec", "{name: csa_ud, framing: uc_immediate}"]
)
def test_packets_of_the_summary_are_those_of_the_capture(tmp_path, transport):
    """Data and control, of a run that loses packets and marks others: each is one or the other."""
    slow = "topology.links.1.rate=1Gbit limit 20 ecn 3"
    experiment = of(f"transports=[{transport}]", slow)
    path = tmp_path / "trace.pcapng"
    uplinks = Wanted(("h1->s1", "h2->s2"), 0, path)
    run = virtual.run(experiment, experiment.transports[0], 1, lambda _done: None, uplinks)
    packets = capture_file.read(path).packets
    striped = (packets["has"] & Has.LAB != 0) & (packets["lab_kind"] == 0)
    requests = np.isin(packets["opcode"] >> 5, (opcodes.RC, opcodes.UC))
    data = striped | requests & ~opcodes.IS_RESPONSE[packets["opcode"]]
    row = run.summary()
    if transport == "sdr_ec":  # its immediates do not tell parity from data
        row |= {"packets_sent": row["packets_sent"] + row["parity_packets"]}
    assert row["injected_drops"] > 0
    assert row["retransmitted"] > 0
    assert (row["packets_sent"], row["control_packets"]) == (data.sum(), (~data).sum())
    assert row["packets_sent"] > PACKETS
    assert row["control_packets"] > 0
