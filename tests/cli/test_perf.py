# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab perf`: the distribution's programs over the lab's verbs library."""

import json
import os
import signal
import time

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.experiment.perftest import run as perftest
from softroce_lab.fabric import runtime
from softroce_lab.telemetry import counters_file
from tests.cli.conftest import CommandLine
from tests.labs import eventually, leftovers, prepare_verbs

NO_END = ["write_bw", "h1", "h2", "--", "-D", "60"]
ASIDE = """
name: aside
topology:
  nodes: {h1: {kind: host}, h2: {kind: host}, h3: {kind: host}, s1: {kind: switch}}
  links:
    - endpoints: ["h1:eth1", "s1:p1"]
    - endpoints: ["h2:eth1", "s1:p2"]
    - endpoints: ["h3:eth1", "s1:p3"]
faults:
  - {name: cut, links: "s1->h3", loss: random 1%}
"""


@pytest.fixture(scope="module")
def up():
    """Two hosts over a switch."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    prepare_verbs()
    line = CommandLine()
    assert line.up().returncode == 0
    yield line
    line.run("down", line.name)


@pytest.fixture
def faults(up):
    """Sets faults, which are gone after the test."""
    yield lambda *words: up.run("fault", "set", *words, "--lab", up.name)
    up.run("fault", "clear", "--lab", up.name)


def perf(up, test, *options, client="h1", server="h2"):
    words = ("perf", test, client, server, "--lab", up.name, "--json", "--", *options)
    done = up.run(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def counted(found):
    """By both RNICs together."""
    processes = [each for host in found["rnics"].values() for each in host]
    assert len(processes) == 2, found["rnics"]
    return tuple(
        sum(each[name] for each in processes) for name in ("packets_sent", "retransmitted")
    )


def test_bandwidth_over_a_lossy_link(up, faults):
    faults("h1<->s1", "loss", "1%")
    found = perf(up, "write_bw", "-n", "100")
    (row,) = found["results"]
    assert (row["MsgSize"], row["n_iterations"]) == (65536, 100)
    assert 0 < row["BW_average"] <= row["BW_peak"]
    assert found["units"]["BW_average"].endswith("B/sec")
    links = found["fabric"]["links"]
    assert set(links) <= {"h1->s1", "s1->h1"}
    lost = sum(each["loss"] for each in links.values())
    assert lost == sum(found["fabric"]["rules"].values()) > 5
    sent, retransmitted = counted(found)
    assert sent >= 100 * 32
    assert retransmitted >= links["h1->s1"]["loss"]


def test_latency_and_a_pingpong_without_loss(up):
    found = perf(up, "ib_send_lat", "-n", "100", "-x", "1", client="h2", server="h1")
    assert (found["client"], found["program"]) == ("h2", "ib_send_lat")
    assert found["outputs"]["h2"].count(" GID: 253:83:") == 2  # fd53::, as -x 1 asks
    (row,) = found["results"]
    assert 0 < row["t_min"] <= row["t_typical"] <= row["percentile_99"] <= row["t_max"]
    assert found["fabric"]["links"] == {}
    found = perf(up, "ibv_ud_pingpong", "-n", "100", "-s", "1000")
    (row,) = found["results"]
    assert (row["bytes"], row["n_iterations"]) == (2 * 1000 * 100, 100)
    assert counted(found) == (200, 0)


def test_all_sizes_by_rdma_cm_as_text(up):
    words = ("perf", "send_bw", "h1", "h2", "--lab", up.name, "--", "-a", "-R", "-n", "5",
             "--report_gbits")  # fmt: skip
    done = up.run(*words)
    assert done.returncode == 0, done.stderr
    results, counts = done.stdout.split("What the lab counted meanwhile:\n")
    assert "BW average[Gb/sec]" in results
    assert results.count("\n 8388608 ") == results.count("\n 2 ") == 1
    assert "no link lost or changed a frame" in counts
    assert "h1: RNIC of ib_send_bw" in counts


def test_a_rule_that_no_packet_met_is_named(lab, tmp_path):
    file = tmp_path / "aside.yaml"
    file.write_text(ASIDE)
    lab.run("up", str(file), "--name", lab.name)
    words = ("perf", "send_lat", "h1", "h2", "--lab", lab.name, "--json", "--", "-n", "10")
    done = lab.run(*words)
    assert "did nothing: cut: no flow took s1->h3" in done.stderr
    fabric = json.loads(done.stdout)["fabric"]
    assert (fabric["rules"], fabric["idle_rules"]) == ({"cut": 0}, ["cut"])


def test_a_peer_that_dies_fails_in_the_words_of_the_program(up, faults):
    words = ("perf", "write_bw", "h1", "h2", "--lab", up.name, "--", "-D", "30", "-u", "12")
    process = up.start(*words)
    assert eventually(lambda: _runs(up), 30)
    faults("h1->s1", "loss", "random 100%")
    output, errors = process.communicate(timeout=50)
    assert process.returncode == 1
    assert "lab: h1: ib_write_bw ended with 1: " in errors
    assert "Completion with error" in output
    assert "Failed status 12" in output  # IBV_WC_RETRY_EXC_ERR
    assert "h1->s1" in output.split("What the lab counted")[1]


def test_it_ends_at_its_time_limit(up, faults):
    faults("h1<->s1", "loss", "random 100%")
    words = ("perf", "ud_pingpong", "h1", "h2", "--lab", up.name, "--timeout", "6s", "--json")
    begun_s = time.monotonic()
    done = up.run(*words)
    assert time.monotonic() - begun_s < 50
    assert done.returncode == 1
    problems = json.loads(done.stdout)["problems"]
    assert problems[0] == "h2: still at work after 6 s"  # on a busy machine h1 has not begun


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_ends_both_programs(up, number):
    before = leftovers()
    process = up.start("perf", *NO_END[:3], "--lab", up.name, *NO_END[3:])
    assert eventually(lambda: _runs(up), 30)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in errors
    assert eventually(lambda: not _runs(up))
    if number == signal.SIGINT:
        assert eventually(lambda: not leftovers() - before), leftovers() - before


def _runs(up):
    """Whether an RNIC of a program is published, and its process is there."""
    folder = runtime.DIRECTORY / up.name / counters_file.DIRECTORY
    return any(each.alive for each in counters_file.read_all(folder))


@pytest.mark.parametrize(
    ("arguments", "states"),
    [
        (["write_band", "h1", "h2"], "there is no test write_band"),
        (["write_bw", "h1", "h2", "-D", "5"], "lab perf has no option -D"),
        (["write_bw", "h1", "h9"], "has no host 'h9'"),
        (["write_bw", "h1", "s1"], "has no host 's1'"),
        (["write_bw", "h1", "h1"], "h1 is client and server"),
        (["write_bw", "h1", "h2", "--timeout", "0s"], "--timeout 0s"),
        (["write_bw", "h1", "h2", "--", "-D", "long"], "-D long is not a number of seconds"),
        (["write_bw", "h1", "h2", "--", "--port=0"], "-p 0 is not a TCP port"),
        (["write_bw", "h1", "h2", "--lab", "none-such"], "there is no lab called none-such"),
    ],
)
def test_nonsense_is_refused(up, arguments, states):
    front, dashes, options = (arguments, [], [])
    if "--" in arguments:
        at = arguments.index("--")
        front, dashes, options = arguments[:at], ["--"], arguments[at + 1 :]
    own = [] if "--lab" in arguments else ["--lab", up.name]
    result = CliRunner().invoke(app, ["perf", *front, *own, *dashes, *options])
    assert result.exit_code == 2
    assert states in result.stderr


def test_a_program_that_is_not_installed(up, monkeypatch):
    monkeypatch.setattr(perftest.shutil, "which", lambda _: None)
    for test, package in (("write_bw", "perftest"), ("rc_pingpong", "ibverbs-utils")):
        result = CliRunner().invoke(app, ["perf", test, "h1", "h2", "--lab", up.name])
        assert result.exit_code == 3
        assert f"apt install {package}" in result.stderr


def test_an_error_of_the_program_is_the_verdict(up):
    done = up.run("perf", "send_bw", "h1", "h2", "--lab", up.name, "--", "-n", "3")
    assert done.returncode == 1
    assert "lab: h2: ib_send_bw ended with 1: " in done.stderr
    assert "Iteration num should be between 5" in done.stdout
