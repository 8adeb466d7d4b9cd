# SPDX-License-Identifier: GPL-2.0-or-later
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from softroce_lab.paths import PROJECT_ROOT

ATTEMPTS = 5


def test_up_prints_what_is_up(lab):
    result = lab.up()
    assert result.returncode == 0
    assert result.stdout.startswith(f"{lab.name} up: 2 hosts, 1 switch, 2 links (")
    assert f"{lab.name}-h1" in result.stdout
    assert "probes" in result.stderr


@pytest.mark.parametrize("mode", ["native", "generic"])
def test_up_as_json(lab, mode):
    document = json.loads(lab.up("--json", "--xdp", mode).stdout)
    assert (document["schema_version"], document["state"], document["xdp"]) == (1, "up", mode)
    nodes = {node["name"]: node for node in document["lab"]["nodes"]}
    assert nodes["h1"]["namespace"] == f"{lab.name}-h1"
    assert document["lab"]["links"] == [["h1:eth1", "s1:p1"], ["h2:eth1", "s1:p2"]]


def test_a_dry_run_makes_nothing(lab):
    document = json.loads(lab.up("--dry-run", "--json").stdout)
    assert document["state"] == "planned"
    assert len(document["lab"]["nodes"]) == 3
    assert lab.traces() == []


def test_a_dry_run_says_what_rules_there_are(lab, tmp_path):
    file = tmp_path / "f.yaml"
    file.write_text(
        "name: f\ntopology: {generator: {kind: star, hosts: 2}}\n"
        "faults: [{name: grey, links: 's1->h2', loss: 1%}]\n"
    )
    result = lab.run("up", str(file), "--dry-run")
    assert result.stdout.splitlines()[-1] == "    loss random 1%  (grey) on s1->h2"
    assert "lab fault show" not in result.stdout


def test_rails_are_aligned(lab):
    lines = lab.run("up", "dual-rail", "--dry-run").stdout.splitlines()[1:]
    assert len({line.index("dual-rail-") for line in lines}) == 1


def test_a_lab_that_is_up_already(lab):
    assert lab.up().returncode == 0
    again = lab.up()
    assert (again.returncode, again.stdout) == (2, "")
    assert f"the lab {lab.name} is up already" in again.stderr
    assert lab.json("ps", lab.name)["labs"][0]["state"] == "up"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name: [", ":1:"),
        ("nmae: x\ntopology: {}", "nmae"),
        (
            "name: x\ntopology:\n  nodes: {h1: {kind: host}}\n  links: [{endpoints: [a:x, h1:y]}]",
            "a",
        ),
    ],
)
def test_bad_input_is_named_by_its_place_and_changes_nothing(lab, tmp_path, text, complaint):
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    result = lab.run("up", str(file), "--name", lab.name)
    assert result.returncode == 2
    assert f"{file}:" in result.stderr
    assert complaint in result.stderr
    assert "Traceback" not in result.stderr
    assert lab.traces() == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("topology: {generator: {kind: fat-tree, k: 18}}", ":2:11: big has 8748 ports"),
        ("topology: {generator: {kind: star, hosts: 2}}\nmtu: 600", ":3:6: mtu 600 is below 1280"),
    ],
)
def test_a_dry_run_refuses_what_up_refuses(lab, tmp_path, text, complaint):
    file = tmp_path / "big.yaml"
    file.write_text(f"name: big\n{text}\n")
    refusals = [lab.run("up", str(file), *options) for options in ((), ("--dry-run",))]
    assert [each.returncode for each in refusals] == [2, 2]
    assert refusals[0].stderr == refusals[1].stderr
    assert complaint in refusals[0].stderr
    assert lab.traces() == []


def test_a_file_that_is_not_there(lab):
    result = lab.run("up", "/no/such.yaml")
    assert result.returncode == 2
    assert "/no/such.yaml" in result.stderr
    assert "Traceback" not in result.stderr


def test_without_rights(lab, nobody):
    result = lab.run("up", "two-hosts", "--name", lab.name, user=nobody)
    assert result.returncode == 3
    assert "root" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("stage", ["ledger.jsonl", "bpf/ports", "monitor.log"])
def test_ctrl_c_cleans_up(lab, stage):
    """SIGINT as soon as this file of the lab is there."""
    mark = Path("/run/softroce_lab", lab.name, stage)
    for _ in range(ATTEMPTS):
        with lab.start("up", "two-hosts", "--name", lab.name) as process:
            while not mark.exists() and process.poll() is None:
                time.sleep(0.0005)
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=60)
        if not stdout.startswith(f"{lab.name} up:"):
            break
        lab.run("down", lab.name)  # on a busy machine, the lab is up before the signal is sent
    assert process.returncode in (130, -signal.SIGINT), stderr
    assert f"lab: interrupted; the lab {lab.name} is removed" in stderr
    assert lab.traces() == []


def test_up_imports_nothing_that_takes_long():
    script = (
        "import sys, softroce_lab.cli.app as cli\n"
        "try: cli.app(['up', 'two-hosts', '--dry-run'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'pyarrow', 'bcc', 'pyroute2', 'rich'} & sys.modules.keys()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=PROJECT_ROOT, capture_output=True, text=True
    )
    assert result.stdout.splitlines()[-1] == "[]"
