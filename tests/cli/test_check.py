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


def test_verdicts_are_a_table_and_violations_have_their_packets(wrong):
    done = lab(FINE)
    assert done.exit_code == 0
    assert f"{FINE}: 77 packets, 1 interface" in done.output
    assert "pass          icrc.right" in done.output
    done = lab(wrong, "--show", "1")
    assert done.exit_code == 1
    for words in ("FAIL          icrc.right", "frame 5: 10.0.0.", "wrong ICRC", "Transport Header"):
        assert words in done.output
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
    (tmp_path / "none.pcap").write_bytes(b"nothing of the kind")
    done = lab(wrong, tmp_path / "none.pcap", FINE, "--junit", tmp_path / "verdicts.xml")
    assert done.exit_code == 2
    assert "none.pcap" in done.stderr
    assert done.output.count("77 packets") == 2
    root = ET.parse(tmp_path / "verdicts.xml").getroot()  # noqa: S314 - ours
    first, second, unread = root.findall("testsuite")
    assert int(first.get("failures")) >= 1
    assert (second.get("failures"), second.get("errors"), unread.get("errors")) == ("0", "0", "1")
    assert first.find("testcase[@name='icrc.right']/failure").text.startswith("frames 5:")
    assert int(first.get("tests")) == len(first.findall("testcase"))
    assert "header of a capture" in unread.find("testcase/error").get("message")
    done = lab(FINE, "--junit", tmp_path / "nowhere" / "verdicts.xml")
    assert done.exit_code == 2
    assert "cannot write" in done.output
    assert "pass          icrc.right" in done.output


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


def test_what_a_verdict_does_not_cover_is_said(tmp_path):
    done = lab(Tape().write(tmp_path / "none.pcapng"))
    assert done.exit_code == 0
    assert "there is no RoCEv2 packet in it" in done.output
    assert "no packet is from 10.9.9.9 or to it" in lab(FINE, "--at", "10.9.9.9").output
    talk = Talk()
    talk.ask(1)
    one_way = talk.write(tmp_path / "one-way.pcapng")
    for at in ("10.0.0.1", "10.0.0.2"):
        done = lab(one_way, "--at", at)
        assert (done.exit_code, done.stderr) == (0, "")


def test_every_rule_is_listed_with_what_demands_it():
    done = lab("--list")
    assert done.exit_code == 0
    for rule in suites.rules():
        assert f"{rule.name}\n    {rule.states}\n    {rule.clause}\n" in done.output
    assert len(json.loads(lab("--list", "--json").output)["rules"]) == len(suites.rules())


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
