# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench faults` in a short form: the document, what faults did, and what stays behind."""

import os
import signal
import subprocess
import sys
import time

import pytest

from softroce_lab import topology
from softroce_lab.bench import fault_sets
from softroce_lab.bench import faults as bench_faults
from softroce_lab.faults import layout as fault_layout
from tests.bench.test_engine_and_path import bench, document, holds, positive

FORWARDING = {"random", "gemodel", "named64", "all"}
HOSTS = {"over_nft_1", "over_nft_3"}
KILLED_AFTER_S = 3.0
SHORT = ("--rounds", "1", "--seconds", "0.1")


def test_forwarding(tmp_path, nothing_left):
    figures = document(tmp_path, "faults", "--only", "forwarding", *SHORT)
    assert figures["schema_version"] == 1
    assert set(figures["ratios"]) == set(figures["ratios_interval_95"]) == FORWARDING
    for name, ratio in figures["ratios"].items():
        assert holds(figures["ratios_interval_95"][name], ratio), name
    assert positive(figures["frames_per_second"].values())
    assert figures["rounds"] == 1
    assert figures["xdp_mode"] in ("native", "generic")
    assert figures["environment"]["kernel"] == os.uname().release
    assert "wire_frames_per_second" not in figures
    for name, rate in figures["drop_rates"].items():
        assert 0 < rate < 0.02, name  # about a hundredth at most, and every fault took some


def test_hosts(tmp_path, nothing_left):
    figures = document(tmp_path, "faults", "--only", "hosts", *SHORT)
    assert set(figures["ratios"]) == HOSTS
    assert set(figures["ratios_moderated"]) == HOSTS
    assert positive(figures["ratios"].values())
    assert positive(figures["ratios_moderated"].values())
    assert figures["lacking"] == {}


def test_wire(tmp_path, nothing_left):
    figures = document(tmp_path, "faults", "--only", "wire", "--seconds", "0.1")
    error = figures["delay_error_ns"]
    assert 0 <= error["p50"] <= error["p99"] <= error["p99_9"] <= error["max"]
    assert error["frames"] == 50_000
    pace = figures["wire_frames_per_second"]
    assert pace == 0 or 1000 < pace < 2_000_000, pace  # 0: every pace lost some, on a busy machine
    assert figures["wire_scheduling"] in ("SCHED_FIFO", "SCHED_OTHER")
    assert figures["rate"]["requested_bps"] == 200_000_000
    queue = figures["queue"]
    assert queue["most_waiting_packets"] <= queue["limit_packets"]
    assert queue["passed_packets"] == queue["limit_packets"] + 1
    assert queue["marked_from_packets"] == queue["ecn_packets"]
    assert queue["marks_exact"]


def test_in_words(tmp_path):
    result = bench(tmp_path, "faults", "--only", "forwarding", *SHORT)
    assert result.returncode == 0, result.stderr
    assert "round 1 of 1" in result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == list(fault_sets.SETS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--only", "colour"), "colour"), (("--rounds", "0"), "rounds"), (("--seconds", "0"), "sec")],
)
def test_bad_input(tmp_path, nothing_left, arguments, words):
    result = bench(tmp_path, "faults", *arguments)
    assert result.returncode == 2, (result.stdout, result.stderr)
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_an_interrupt_leaves_nothing(tmp_path, nothing_left):
    argv = [sys.executable, "-m", "softroce_lab.cli", "bench", "faults", "--only", "hosts"]
    with subprocess.Popen(argv, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:  # fmt: skip
        time.sleep(KILLED_AFTER_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def test_sets_fit_a_link():
    for name, faults in fault_sets.SETS.items():
        laid = fault_layout.link_rules(faults(2))
        assert not laid.shaped, name
        assert len(laid.names) == (fault_sets.NAMES if name in ("named64", "all") else 0), name
    assert len(laid.rule_ids) == fault_layout.FAULT_RULES  # of "all", the last one


@pytest.mark.parametrize(("switches", "router"), [(1, "s1"), (3, "leaf1")])
def test_the_first_switch(switches, router):
    plan = topology.load(bench_faults.TOPOLOGIES[switches], name="bench")
    link, directed, port = bench_faults.first_switch(plan)
    assert port.node == router
    assert directed // 2 == link.index
    assert port in (link.a, link.b)
