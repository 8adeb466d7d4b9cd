# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab perf`: the distribution's programs over the lab's verbs library."""

import json
import signal
import time

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.experiment.perftest import run as perftest
from softroce_lab.fabric import runtime
from softroce_lab.telemetry import capture_file, counters_file
from tests.labs import eventually, leftovers, prepare_verbs

ASIDE = """
name: aside
topology: {generator: {kind: star, hosts: 3}}
faults:
  - {name: cut, links: "s1->h3", loss: random 1%}
"""


@pytest.fixture(scope="module", autouse=True)
def library(up):
    prepare_verbs()


@pytest.fixture
def faults(up):
    """Sets faults, which are gone after the test."""
    yield lambda *words: up.fault("set", *words)
    up.fault("clear")


def line(lab, test, *options, client="h1", server="h2", own=()):
    return ("perf", test, client, server, "--lab", lab.name, *own, "--", *options)


def perf(up, test, *options, **chosen):
    done = up.run(*line(up, test, *options, **{"own": ("--json",)} | chosen))
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


def test_latency_and_a_pingpong_without_loss(up, tmp_path):
    path = tmp_path / "trace.pcapng"
    own = ("--json", "--capture", "*->h2", "--capture", "s1->h1", "--capture-file", str(path))
    found = perf(up, "ib_send_lat", "-n", "100", "-x", "1", client="h2", server="h1", own=own)
    assert (found["client"], found["program"]) == ("h2", "ib_send_lat")
    assert found["outputs"]["h2"].count(" GID: 253:83:") == 2  # fd53::, as -x 1 asks
    (row,) = found["results"]
    assert 0 < row["t_min"] <= row["t_typical"] <= row["percentile_99"] <= row["t_max"]
    assert found["fabric"]["links"] == {}
    seen = capture_file.read(path)
    assert [each.name for each in seen.interfaces] == ["s1->h1", "s1->h2"]
    assert found["capture"]["captured"] == len(seen.packets) >= 2 * 100
    found = perf(up, "ibv_ud_pingpong", "-n", "100", "-s", "1000")
    (row,) = found["results"]
    assert (row["bytes"], row["n_iterations"]) == (2 * 1000 * 100, 100)
    assert counted(found) == (200, 0)


def test_all_sizes_by_rdma_cm_as_text(up):
    done = up.run(*line(up, "send_bw", "-a", "-R", "-n", "5", "--report_gbits"))
    assert done.returncode == 0, done.stderr
    results, counts = done.stdout.split("What the lab counted meanwhile:\n")
    assert "BW average[Gb/sec]" in results
    assert results.count("\n 8388608 ") == results.count("\n 2 ") == 1
    assert "no link lost or changed a frame" in counts
    assert "h1: RNIC of ib_send_bw" in counts


def test_a_rule_that_no_packet_met_is_named(lab, tmp_path):
    (tmp_path / "aside.yaml").write_text(ASIDE)
    lab.up(file=tmp_path / "aside.yaml")
    done = lab.run(*line(lab, "send_lat", "-n", "10", own=("--json",)))
    assert "did nothing: cut: no flow took s1->h3" in done.stderr
    found = json.loads(done.stdout)["fabric"]
    assert (found["rules"], found["idle_rules"]) == ({"cut": 0}, ["cut"])


def test_failures_are_in_the_words_of_the_programs(up, faults):
    done = up.run(*line(up, "send_bw", "-n", "3"))
    assert done.returncode == 1
    assert "lab: h2: ib_send_bw ended with 1: " in done.stderr
    assert "Iteration num should be between 5" in done.stdout
    process = up.start(*line(up, "write_bw", "-D", "30", "-u", "12"))
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
    begun_s = time.monotonic()
    done = up.run(*line(up, "ud_pingpong", own=("--timeout", "6s", "--json")))
    assert time.monotonic() - begun_s < 50
    assert done.returncode == 1
    problems = json.loads(done.stdout)["problems"]
    assert problems[0] == "h2: still at work after 6 s"  # on a busy machine h1 has not begun


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_ends_both_programs(up, number):
    before = leftovers()
    process = up.start(*line(up, "write_bw", "-D", "60"))
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
    ("front", "options", "states"),
    [
        (["write_band", "h1", "h2"], [], "there is no test write_band"),
        (["write_bw", "h1", "h2", "-D", "5"], [], "lab perf has no option -D"),
        (["write_bw", "h1", "h9"], [], "has no host 'h9'"),
        (["write_bw", "h1", "s1"], [], "has no host 's1'"),
        (["write_bw", "h1", "h1"], [], "h1 is client and server"),
        (["write_bw", "h1", "h2", "--timeout", "0s"], [], "--timeout 0s"),
        (["write_bw", "h1", "h2"], ["-D", "long"], "-D long is not a number of seconds"),
        (["write_bw", "h1", "h2"], ["--port=0"], "-p 0 is not a TCP port"),
    ],
)
def test_nonsense_is_refused(up, front, options, states):
    result = CliRunner().invoke(app, ["perf", *front, "--lab", up.name, "--", *options])
    assert result.exit_code == 2
    assert states in result.stderr


def test_a_program_that_is_not_installed(up, monkeypatch):
    monkeypatch.setattr(perftest.shutil, "which", lambda _: None)
    for test, package in (("write_bw", "perftest"), ("rc_pingpong", "ibverbs-utils")):
        result = CliRunner().invoke(app, ["perf", test, "h1", "h2", "--lab", up.name])
        assert result.exit_code == 3
        assert f"apt install {package}" in result.stderr
