# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab perf` where an end is a kernel host: the guest's programs, on Linux's rxe."""

import json
import subprocess
import sys

import pytest

from softroce_lab import topology
from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric.daemons.wire import WireStage
from softroce_lab.faults import live
from softroce_lab.paths import PROJECT_ROOT
from softroce_lab.plan import locate
from softroce_lab.programs.kernel_host.guest import GuestDeadError
from tests.labs import prepare_verbs

BOTH = [("h1", "k1"), ("k1", "h1")]
ROUNDS = 50
# 1.07 s. Seven retries with perftest's own 14 give up after half a second, in which a busy machine
# may run neither the guest nor its peer: with such halts 2 of 280 runs failed.
OPTIONS = ["-u", "18", "-n", str(ROUNDS), "-s", "1000"]
LONGEST_S = 400


@pytest.fixture(scope="module")
def lab():
    prepare_verbs()
    up = fabric.up(topology.load("kernel-peer", name="interop-perf"), ephemeral=True)
    yield up
    up.down()


def perf(lab, client, server, test, *options, ends_with=0):
    argv = [sys.executable, "-m", "softroce_lab.cli", "perf", test, client, server, "--json"]
    done = subprocess.run(
        [*argv, "--lab", lab.plan.name, "--", *options], cwd=PROJECT_ROOT, capture_output=True,
        text=True, timeout=LONGEST_S,
    )  # fmt: skip
    assert done.returncode == ends_with, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("client", "server"), BOTH)
def test_perftest_and_a_pingpong_with_and_without_loss(lab, client, server):
    for test in ("write_bw", "send_lat"):
        (row,) = perf(lab, client, server, test, *OPTIONS)["results"]
        assert (row["MsgSize"], row["n_iterations"]) == (1000, ROUNDS)
    link = locate.uplink(lab.plan, lab.plan.node("k1").ports[0])
    lab.set_faults(live.set_on(lab.plan, [link], live.parse_impairments(["loss", "10%"])))
    try:
        found = perf(lab, client, server, "rc_pingpong", "-n", str(ROUNDS), "-s", "1000")
    finally:
        lab.set_faults(live.clear_on(lab.plan, [link]))
    assert found["results"][0]["n_iterations"] == ROUNDS
    assert found["fabric"]["links"]["k1->s1"]["loss"] > 0
    assert list(found["rnics"]) == ["h1"]
    repaired = {**found["fabric"]["kernel_hosts"].get("k1", {})}
    repaired["h1"] = sum(each["retransmitted"] for each in found["rnics"]["h1"])
    assert any(repaired.values()), found


@pytest.mark.parametrize(("client", "server"), BOTH)
def test_for_a_while_and_by_datagrams(lab, client, server):
    (row,) = perf(lab, client, server, "read_lat", "-D", "2", "-u", "18")["results"]
    assert row["t_avg"] > 0
    options = ["-c", "UD", "-n", str(ROUNDS), "-s", "64"]
    (row,) = perf(lab, client, server, "send_lat", *options)["results"]
    assert row["n_iterations"] == ROUNDS


def test_a_kernel_host_waits_for_its_port(lab):
    """Its frames wait in the token bucket in front of its link, not at the link itself."""
    uplink = locate.uplink(lab.plan, lab.plan.node("k1").ports[0])
    slow = live.parse_impairments(["rate", "20Mbit", "limit", "4"])
    lab.set_faults(live.set_on(lab.plan, [uplink], slow))
    try:
        perf(lab, "k1", "h1", "write_bw", "-n", "20", "-s", "65536", "-u", "18")
        with WireStage(lab.directory) as stage:
            figures = stage.link(uplink)
    finally:
        lab.set_faults(live.clear_on(lab.plan, [uplink]))
    assert figures.released > 20 * 65536 / 2048
    assert figures.dropped_limit == 0
    assert figures.most_waiting_packets <= 8


@pytest.mark.parametrize("ends", BOTH)
def test_an_error_names_how_the_program_ended(lab, ends):
    ender = "until pid=$(pidof ib_send_bw); do sleep 0.1; done; sleep 1; kill $pid"
    with lab.guest("k1").start(["sh", "-c", ender]):
        found = perf(lab, *ends, "send_bw", "-D", "60", "-u", "18", ends_with=1)
    assert any(each.startswith("k1: ib_send_bw ended with 143") for each in found["problems"])


@pytest.mark.parametrize("ends", BOTH)
def test_a_kernel_that_panics_meanwhile_is_blamed(lab, ends):
    guest = lab.guest("k1")
    panics = "until pidof ib_send_lat; do sleep 0.1; done; sleep 1; echo c > /proc/sysrq-trigger"
    with guest.start(["sh", "-c", panics]):
        found = perf(lab, *ends, "send_lat", "-D", "60", ends_with=1)
    assert any("the kernel host k1 is dead" in each for each in found["problems"])
    with pytest.raises(GuestDeadError) as raised:
        guest.check_alive()
    assert raised.value.panic.verdict == "sysrq triggered crash"


def test_between_two_kernel_hosts():
    up = fabric.up(topology.load("kernel-two", name="interop-two"), ephemeral=True)
    try:
        client, server = up.plan.kernel_hosts
        found = perf(up, client.name, server.name, "write_bw", *OPTIONS)
    finally:
        up.down()
    assert found["results"][0]["n_iterations"] == ROUNDS
    assert found["rnics"] == {}
