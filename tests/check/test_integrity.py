# SPDX-License-Identifier: GPL-2.0-or-later
"""What a capture misses is said, and counted."""

import json

import pytest

from softroce_lab.check.verdict import Outcome
from tests.check.plant import Tape, check, failed, shown

NAME = "h1->leaf1"


@pytest.fixture
def tape():
    return Tape.of("rxe_rc_pp")


def run_directory(folder, tape, **figures):
    """A run whose capture is this tape."""
    counted = {"name": NAME, "received": len(tape), "emulator_drops": 0, "injected_drops": 0}
    runs = {"csa_ud": [counted | {"wire": None} | figures]}
    (folder / "links.json").write_text(json.dumps({"schema_version": 1, "runs": runs}))
    (folder / "manifest.json").write_text("{}")
    tape.interfaces = [NAME]
    tape.write(folder / "trace.pcapng")
    return folder


def test_packets_that_were_missed(tape, tmp_path):
    tape.statistics = {0: (410, 10)}
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == {"integrity.missed"}
    assert "10 packets missed" in verdicts["integrity.missed"].exhibits[0].text


def test_a_file_that_ends_in_the_middle_of_a_packet(tape, tmp_path):
    path = tape.write(tmp_path / "cut.pcapng")
    path.write_bytes(path.read_bytes()[:-20])
    verdicts = check(path)
    assert failed(verdicts) == {"integrity.file"}
    assert "ends in the middle" in verdicts["integrity.file"].exhibits[0].text
    assert verdicts["icrc.right"].checked == 399


def test_a_packet_that_is_malformed(tape, tmp_path):
    data = bytearray(tape.frame(3).data)
    data[14 + 20 + 8] = 0x15  # an opcode that there is not
    tape.frame(3).data = bytes(data)
    verdicts = tape.check(tmp_path)
    assert "integrity.headers" in failed(verdicts)
    assert shown(verdicts["integrity.headers"]) == {3}


def test_what_was_cut_off_is_not_checked(tape, tmp_path):
    long = [frame for frame in tape.frames if len(frame.data) > 100][:100]
    for frame in long:
        frame.length, frame.data = len(frame.data), frame.data[:80]
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == set()
    assert "100 inconclusive: the snap length cut the ICRC off" in verdicts["icrc.right"].note


def test_headers_that_were_cut_off(tape, tmp_path):
    for frame in tape.frames:
        frame.length, frame.data = len(frame.data), frame.data[:50]
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == set()
    assert verdicts["integrity.headers"].outcome is Outcome.INCONCLUSIVE


def test_frames_of_others_and_vlan_tags_are_stepped_over(tape, tmp_path):
    for number in range(1, 200):
        frame = tape.frame(number)
        frame.data = frame.data[:12] + bytes.fromhex("81000005") + frame.data[12:]
    arp = tape.frame(1).data[:12] + bytes.fromhex("0806") + bytes(46)
    for number in range(1, 300, 7):
        tape.copy(number, before=number)
        tape.frame(number).data = arp
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == set()
    assert "frames that are not RoCEv2" in verdicts["integrity.file"].note


def test_a_run_directory_whose_links_carried_what_was_captured(tape, tmp_path):
    verdicts = check(run_directory(tmp_path, tape))
    assert verdicts["integrity.links"].outcome is Outcome.PASS


@pytest.mark.parametrize("figures", [{"received": 405}, {"injected_drops": 1}, {"received": 399}])
def test_a_run_directory_whose_links_carried_something_else(figures, tape, tmp_path):
    verdicts = check(run_directory(tmp_path, tape, **figures))
    assert failed(verdicts) == {"integrity.links"}
    assert NAME in verdicts["integrity.links"].exhibits[0].text


def test_packets_that_faults_took_and_copied_are_accounted_for(tape, tmp_path):
    figures = {"received": len(tape) - 3, "injected_drops": 4, "wire": {"duplicated": 1}}
    verdicts = check(run_directory(tmp_path, tape, **figures))
    assert verdicts["integrity.links"].outcome is Outcome.PASS


def test_packets_that_faults_took_behind_a_host_were_counted_there(tape, tmp_path):
    folder = run_directory(tmp_path, tape, injected_drops=4)
    (folder / "manifest.json").write_text(json.dumps({"source": "h1", "destination": "h3"}))
    assert check(folder)["integrity.links"].outcome is Outcome.PASS
