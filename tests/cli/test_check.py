# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab verify`: verdicts in text, JSON and JUnit XML, and its exit codes."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from typer.testing import CliRunner

from softroce_lab.check import suites
from softroce_lab.cli.app import app
from tests.check.plant import Talk, Tape
from tests.native.frames import CAPTURES

FINE = CAPTURES / "rxe_verbs_nak.pcap"


def lab(*arguments):
    return CliRunner().invoke(app, ["verify", *map(str, arguments)])


@pytest.fixture
def wrong(tmp_path):
    """A capture with two violations."""
    tape = Tape.of("rxe_verbs_nak")
    tape.alter(5, icrc=1)
    return tape.write(tmp_path / "wrong.pcapng")


def test_verdicts_are_a_table():
    done = lab(FINE)
    assert done.exit_code == 0
    assert f"{FINE}: 77 packets, 1 interface" in done.output
    assert "pass          icrc.right" in done.output
    assert "0 fail" not in done.output


def test_violations_are_shown_with_their_packets(wrong):
    done = lab(wrong)
    assert done.exit_code == 1
    assert "FAIL          icrc.right" in done.output
    assert "frame 5: 10.0.0." in done.output
    assert "wrong ICRC" in done.output


def test_packets_are_shown_in_full(wrong):
    done = lab(wrong, "--show", "1")
    assert "frame 5" in done.output
    assert "Transport Header" in done.output


def test_one_rule_alone(wrong):
    done = lab(wrong, "--only", "rule=rc.length", "--only", "rule=uc")
    assert done.exit_code == 0
    assert "rc.length" in done.output
    assert "icrc.right" not in done.output


def test_json(wrong):
    done = lab(wrong, FINE, "--json")
    assert done.exit_code == 1
    files = json.loads(done.output)["files"]
    assert [each["packets"] for each in files] == [77, 77]
    verdicts = {each["rule"]: each for each in files[0]["verdicts"]}
    assert verdicts["icrc.right"]["outcome"] == "fail"
    assert verdicts["icrc.right"]["exhibits"][0]["packets"] == [5]


def test_junit(wrong, tmp_path):
    done = lab(wrong, FINE, "--junit", tmp_path / "verdicts.xml")
    assert done.exit_code == 1
    root = ET.parse(tmp_path / "verdicts.xml").getroot()  # noqa: S314 - ours
    first, second = root.findall("testsuite")
    assert int(first.get("failures")) >= 1
    assert second.get("failures") == "0"
    failed = {case.get("name") for case in first if case.find("failure") is not None}
    assert "icrc.right" in failed
    assert first.find("testcase[@name='icrc.right']/failure").text.startswith("frames 5:")
    assert (tmp_path / "verdicts.xml").read_text().endswith("</testsuites>\n")
    assert int(first.get("tests")) == len(first.findall("testcase"))
    assert not any("time" in element.attrib for element in root.iter())


def test_junit_that_cannot_be_written_is_a_wrong_use(tmp_path):
    done = lab(FINE, "--junit", tmp_path / "nowhere" / "verdicts.xml")
    assert done.exit_code == 2
    assert "cannot write" in done.output
    assert "pass          icrc.right" in done.output


def test_a_file_that_is_no_capture_is_said_and_the_others_are_checked(tmp_path):
    (tmp_path / "none.pcap").write_bytes(b"nothing of the kind")
    done = lab(tmp_path / "none.pcap", FINE)
    assert done.exit_code == 2
    assert "none.pcap" in done.output
    assert "77 packets" in done.output


@pytest.mark.parametrize(
    "arguments",
    [(), ("missing.pcap",), (FINE, "--only", "rule=rc.nothing"),
     (FINE, "--only", "rc.length"), (FINE, "--at", "here"),
     (FINE, "--path-mtu", "1000"), (CAPTURES,)],
)  # fmt: skip
def test_mistakes_are_told(arguments):
    done = lab(*arguments)
    assert done.exit_code == 2
    assert done.output.startswith("lab: ") or "Usage" in done.output
    assert "Traceback" not in done.output


def test_a_capture_of_nothing_is_said(tmp_path):
    done = lab(Tape().write(tmp_path / "none.pcapng"))
    assert done.exit_code == 0
    assert "there is no RoCEv2 packet in it" in done.output


def test_an_address_that_is_not_in_the_capture_is_said():
    assert "no packet is from 10.9.9.9 or to it" in lab(FINE, "--at", "10.9.9.9").output


@pytest.mark.parametrize("at", ["10.0.0.1", "10.0.0.2"], ids=["source", "destination"])
def test_an_address_of_one_direction_alone_is_in_the_capture(at, tmp_path):
    talk = Talk()
    talk.ask(1)
    done = lab(talk.write(tmp_path / "one-way.pcapng"), "--at", at)
    assert done.exit_code == 0
    assert done.stderr == ""


def test_every_rule_is_listed_with_what_demands_it():
    done = lab("--list")
    assert done.exit_code == 0
    for rule in suites.rules():
        assert f"{rule.name}\n    {rule.states}\n    {rule.clause}\n" in done.output
    assert len(json.loads(lab("--list", "--json").output)["rules"]) == len(suites.rules())


def test_junit_tells_of_files_that_cannot_be_read(tmp_path):
    broken, out = tmp_path / "broken.pcap", tmp_path / "verdicts.xml"
    broken.write_bytes(b"no capture")
    assert lab(FINE, broken, "--junit", out).exit_code == 2
    read, unread = ET.parse(out).getroot().findall("testsuite")  # noqa: S314 - ours
    assert (read.get("errors"), unread.get("errors")) == ("0", "1")
    assert "header of a capture" in unread.find("testcase/error").get("message")


def test_a_run_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ["--set", "workload.bytes=64KiB", "--transport", "csa_ud", "--seed", "3", "-q"]
    made = CliRunner().invoke(app, ["run", "incast", *small, "--capture"])
    assert made.exit_code == 0
    done = lab("latest")
    assert done.exit_code == 0
    assert "0 fail" not in done.output
    wrong = lab("nothing")
    assert wrong.exit_code == 2
    assert "no run or sweep is called 'nothing'" in wrong.stderr
    captures = sorted(Path("runs/latest").glob("trace*.pcapng"))
    captures[0].unlink()
    done = lab("latest")
    assert done.exit_code == 2
    assert f"{captures[0].name}: the run recorded this capture, and it is gone" in done.stderr
