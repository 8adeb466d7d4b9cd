# SPDX-License-Identifier: GPL-2.0-or-later
"""A machine that lacks something gets the best lab it can have; without XDP, a clear refusal."""

import json
import os
from pathlib import Path

import pytest

from softroce_lab.fabric import lacks
from tests.fabric import refusing

TOPOLOGY = """
name: shaped
topology:
  nodes: {h1: {kind: host}, s1: {kind: switch}, h2: {kind: host}}
  links:
    - {endpoints: ["h1:eth1", "s1:p1"], delay: 1ms}
    - {endpoints: ["h2:eth1", "s1:p2"]}
"""


@pytest.fixture
def up(lab_name, traces):
    """`lab up` on a kernel with a refusal, until the test ends."""

    def start(refusal, *arguments, file="two-hosts"):
        return refusing.run_lab(refusal, "up", file, "--name", lab_name, *arguments)

    return start


def test_without_bpf_there_is_no_lab(up, traces):
    result = up(refusing.no_bpf)
    assert result.returncode == 3
    assert "this machine lacks XDP programs: bpf(2): Operation not permitted" in result.stderr
    assert traces.gone()


@pytest.mark.parametrize(("refused", "taken"), [("native", "generic"), ("generic", "native")])
def test_programs_run_in_the_mode_there_is(up, refused, taken):
    result = up(refusing.no_xdp(refused), "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["xdp"] == taken


def test_without_af_xdp_the_fabric_carries_ordinary_traffic(up, run_lab, lab_name):
    result = up(refusing.no_af_xdp, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["lacks"] == [lacks.AF_XDP]
    assert f"without AF_XDP sockets: {lacks.PRICES[lacks.AF_XDP]}" in result.stderr
    ping = ("ping", "-c", "3", "-i", "0.05", "-W", "2", "10.0.0.2")
    assert run_lab("exec", "--lab", lab_name, "h1", "--", *ping).returncode == 0
    assert "without AF_XDP sockets" in run_lab("ps", lab_name).stdout


def test_without_af_xdp_a_shaped_link_is_refused(up, traces, tmp_path):
    path = tmp_path / "shaped.yaml"
    path.write_text(TOPOLOGY)
    result = up(refusing.no_af_xdp, file=str(path))
    assert result.returncode == 3, result.stderr
    assert "this machine lacks AF_XDP sockets" in result.stderr
    assert traces.gone()


def test_without_ring_buffers_drops_are_counted_and_the_run_says_so(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(4 << 20))
    arguments = ("demo", "--json", "--seed", "1", "--file", str(path))
    result = refusing.run_lab(refusing.no_ring_buffers, *arguments)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    manifest = json.loads(Path(document["run_dir"], "manifest.json").read_text())
    assert [run["lacks"] for run in manifest["runs"]] == [[lacks.RING_BUFFERS]] * 2
    assert document["captures"] == []
    assert document["same_first_attempt_drops"] is None
    for run in document["runs"]:
        assert run["verified"]
        assert run["injected_drops"] > 0
        assert run["fidelity"]["verdict"] == "not faithful"


@pytest.mark.parametrize(
    ("refusal", "missing", "code"),
    [
        (refusing.no_af_xdp, {lacks.AF_XDP}, 0),
        (refusing.no_ring_buffers, {lacks.RING_BUFFERS}, 0),
        (refusing.no_xdp("native"), {lacks.NATIVE_XDP}, 0),
        (refusing.no_xdp("native", "generic"), {"XDP on veth", "generic XDP"}, 3),
        (refusing.no_bpf, {"bpf(2)", "XDP on veth"}, 3),
    ],
)
def test_the_doctor_says_what_is_missing(refusal, missing, code):
    result = refusing.run_lab(refusal, "doctor", "--json")
    assert result.returncode == code, result.stdout
    findings = json.loads(result.stdout)["capabilities"]
    lacking = {each["capability"] for each in findings if not each["found"]}
    assert missing <= lacking
    assert all(each["without"] for each in findings if each["capability"] in lacks.PRICES)
