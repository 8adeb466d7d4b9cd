# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab up`, `lab down`, `lab ps` and `lab doctor`: what they print, and what stays on a machine."""

import contextlib
import json
import signal
import time
from pathlib import Path

import pytest

from softroce_lab.errors import ExitCode
from tests.cli.conftest import CommandLine

ATTEMPTS = 5


def line_of(name, text):
    (line,) = (line for line in text.splitlines() if line.split()[0] == name)
    return line


def test_a_lab_comes_up_is_shown_and_goes_down(lab):
    result = lab.up()
    assert result.returncode == 0
    assert result.stdout.startswith(f"{lab.name} up: 2 hosts, 1 switch, 2 links (")
    assert f"{lab.name}-h1" in result.stdout
    assert "probes" in result.stderr
    again = lab.up()
    assert (again.returncode, again.stdout) == (2, "")
    assert f"the lab {lab.name} is up already" in again.stderr
    line = line_of(lab.name, lab.run("ps").stdout)
    assert line.split()[1] == "up"
    assert "3 nodes, 2 links" in line
    text = lab.run("ps", lab.name).stdout
    assert "h1:eth1 - s1:p1" in text
    assert "monitor: process" in text
    assert lab.name not in lab.run("doctor", "--clean").stdout  # it is no remains
    assert f"no lab called nowhere\n  hint: there are: {lab.name}" in lab.refused("down", "nowhere")
    lab.refused("down", f"../softroce_lab/{lab.name}")
    lab.refused("down", lab.name, "--all")
    (found,) = lab.json("ps", lab.name)["labs"]
    assert (found["state"], found["remains"], found["damage"]) == ("up", None, [])
    alive = {each["role"]: each["alive"] for each in found["processes"]}
    assert alive == {"monitor": True, "wire": True}
    assert len(found["plan"]["nodes"]) == 3
    result = lab.run("down", lab.name)
    assert (result.returncode, result.stdout) == (0, f"{lab.name} down\n")
    assert lab.traces() == []
    assert "no lab called" in lab.refused("ps", lab.name)


@pytest.mark.parametrize("mode", ["native", "generic"])
def test_up_as_json(lab, mode):
    document = json.loads(lab.up("--json", "--xdp", mode).stdout)
    assert (document["schema_version"], document["state"], document["xdp"]) == (1, "up", mode)
    nodes = {node["name"]: node for node in document["lab"]["nodes"]}
    assert nodes["h1"]["namespace"] == f"{lab.name}-h1"
    assert document["lab"]["links"] == [["h1:eth1", "s1:p1"], ["h2:eth1", "s1:p2"]]


def test_a_dry_run_says_what_would_come_up_and_makes_nothing(lab, tmp_path):
    document = json.loads(lab.up("--dry-run", "--json").stdout)
    assert document["state"] == "planned"
    assert len(document["lab"]["nodes"]) == 3
    file = tmp_path / "f.yaml"
    file.write_text(
        "name: f\ntopology: {generator: {kind: star, hosts: 2}}\n"
        "faults: [{name: grey, links: 's1->h2', loss: 1%}]\n"
    )
    result = lab.run("up", str(file), "--dry-run")
    assert result.stdout.splitlines()[-1] == "    loss random 1%  (grey) on s1->h2"
    lines = lab.run("up", "dual-rail", "--dry-run").stdout.splitlines()[1:]
    assert len({line.index("dual-rail-") for line in lines}) == 1
    assert lab.traces() == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name: [", ":1:"),
        ("nmae: x\ntopology: {}", "nmae"),
        (
            "name: x\ntopology:\n  nodes: {h1: {kind: host}}\n  links: [{endpoints: [a:x, h1:y]}]",
            "a",
        ),
        ("name: x\ntopology: {generator: {kind: fat-tree, k: 18}}", ":2:11: x has 8748 ports"),
        (
            "name: x\ntopology: {generator: {kind: star, hosts: 2}}\nmtu: 600",
            ":3:6: mtu 600 is below 1280",
        ),
    ],
)
def test_bad_input_is_named_by_its_place_and_changes_nothing(up, tmp_path, text, complaint):
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    refused = up.refused("up", str(file), "--name", "x")
    assert refused == up.refused("up", str(file), "--name", "x", "--dry-run")
    assert f"{file}:" in refused
    assert complaint in refused
    assert not Path("/run/softroce_lab/x").exists()


def test_who_is_not_root_is_told_so(up, nobody):
    for words in (
        ("up", "two-hosts", "--name", f"{up.name}b"),
        ("ps", up.name),
        ("fault", "show", "--lab", up.name),
        ("fault", "set", "s1->h2", "loss", "1%", "--lab", up.name),
    ):
        result = up.run(*words, user=nobody)
        assert (result.returncode, "run it as root" in result.stderr) == (3, True), result.stderr
    result = up.run("doctor", user=nobody)
    assert (result.returncode, result.stderr) == (3, "")
    assert "MISSING  the rights of root" in result.stdout
    assert "get: run it as root, or with sudo" in result.stdout
    assert result.stdout.count("MISSING") == 1
    assert "?        bcc's compiler           not tried" in result.stdout
    assert "ok       the native wire stage" in result.stdout
    assert "the virtual clock works" in result.stdout


def test_a_healthy_machine(up):
    result = up.run("doctor")
    assert result.returncode == 0, result.stdout
    assert "ok       the rights of root" in result.stdout
    document = up.json("doctor")
    assert document["healthy"]
    assert document["virtual_clock"]
    keys = {"capability", "tried", "found", "required", "why", "without", "how", "detail"}
    assert all(set(each) == keys for each in document["capabilities"])


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


def test_an_interrupted_down_finishes(lab):
    lab.up()
    ledger = Path("/run/softroce_lab", lab.name, "ledger.jsonl")
    with lab.start("down", lab.name) as process:
        with contextlib.suppress(FileNotFoundError):  # down was quicker
            while process.poll() is None and "stopping" not in ledger.read_text():
                time.sleep(0.0002)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert lab.traces() == []


def kill_up(lab):
    """A `lab up` that SIGKILL hits when its first namespace is there."""
    with lab.start("up", "two-hosts", "--name", lab.name) as process:
        while not Path("/run/netns", f"{lab.name}-h1").exists():
            time.sleep(0.0005)
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
    assert lab.traces() != []


def test_remains_are_shown_and_removed(lab):
    kill_up(lab)
    document = lab.json("doctor", "--clean", "--dry-run")
    assert {"name": lab.name, "why": "its `lab up` died"} in document["remains"]
    assert not document["removed"]
    line = line_of(lab.name, lab.run("ps").stdout)
    assert "remains" in line
    assert "lab doctor --clean" in line
    result = lab.run("doctor", "--clean")
    assert result.returncode == 0
    assert f"{lab.name} removed: its `lab up` died" in result.stdout
    assert lab.traces() == []
    kill_up(lab)
    result = lab.up()
    assert result.returncode == 0
    assert "removing what is left" in result.stderr


def test_what_no_lab_made_is_shown_and_in_nobodys_way(up, intruder):
    line = line_of(intruder.name, up.run("ps").stdout)
    assert line.split()[1] == "unreadable"
    assert "is not a lab's" in line
    states = {each["name"]: each["state"] for each in up.json("ps")["labs"]}
    assert states[up.name] == "up"
    assert up.run("doctor", "--clean").returncode == 0
    result = up.run("down", intruder.name)
    assert (result.returncode, "is not a lab's" in result.stderr) == (1, True)
    assert intruder.is_symlink()


def test_a_link_that_was_removed_by_hand(lab):
    lab.up()
    gone = lab.run("exec", "--lab", lab.name, "s1", "--", "ip", "link", "del", "p1")
    assert gone.returncode == 0
    result = lab.run("ps", lab.name, "--json")
    assert result.returncode == 1
    (lost,) = json.loads(result.stdout)["labs"][0]["damage"]
    assert set(lost["links"]) == {"h1->s1", "s1->h1"}
    assert lost["hint"] == f"lab down {lab.name}, and up again"
    result = lab.run("ps")
    assert result.returncode == 1
    assert f"{lost['what']}: {lost['hint']}" in result.stdout
    for words in (("set", "h1->s1", "loss", "1%"), ("show", "h1->s1")):
        result = lab.fault(*words)
        assert (result.returncode, lost["what"] in result.stderr) == (1, True)
    elsewhere = lab.fault("set", "s1->h2", "loss", "1%")
    assert elsewhere.returncode == 0
    pinged = lab.ping("-c", "1", "-W", "50ms")
    assert pinged.returncode == 1
    for told in (elsewhere, pinged, lab.run("inspect", "node", "s1", "--lab", lab.name),
                 lab.run("inspect", "graph", lab.name)):  # fmt: skip
        assert lost["what"] in told.stderr


def test_wiresharks_dissector(tmp_path):
    line, folder = CommandLine(), str(tmp_path / "plugins")

    def doctor(what, *more):
        return line.run("doctor", "--wireshark", what, *(more or ("-o", folder)))

    assert doctor("status").stdout.startswith("not installed: ")
    assert doctor("install").stdout == f"installed: {folder}/softroce.lua\n"
    known = {"path": f"{folder}/softroce.lua", "state": "current"}
    assert line.json("doctor", "--wireshark", "status", "-o", folder) == known
    assert doctor("remove").returncode == 0
    assert doctor("status").stdout.startswith("not installed: ")
    (tmp_path / "plugins" / "softroce.lua").write_text("-- mine\n")
    result = doctor("install")
    assert (result.returncode, result.stdout) == (ExitCode.USAGE, "")
    assert "is not of softroce_lab" in result.stderr
    assert (tmp_path / "plugins" / "softroce.lua").read_text() == "-- mine\n"
    assert "name one of them" in doctor("install", "--global", "-o", "/x").stderr
    text = line.run("doctor", "--wireshark", "print").stdout
    assert text.startswith("-- softroce_lab: ")
    assert text.endswith("register_postdissector(softroce)\n")
