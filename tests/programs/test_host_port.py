# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs of a host wait for its port: it drops nothing, and a short message is not far behind.

Rates and times are compared in the full form alone: on a machine that others use, programs wait for
a processor.
"""

import contextlib
import re
import statistics
import subprocess
import time

import pytest

from softroce_lab.experiment.hosts import rnics
from softroce_lab.fabric.daemons.wire import WireStage
from softroce_lab.verbs.enums import IBV_WR_RDMA_WRITE, IBV_WR_SEND
from tests import patience
from tests.verbs.sides import BYTES, connected

RATE_BPS = 1_000_000_000
FRAME_BYTES = 14 + 20 + 8 + 12 + 2048 + 4  # Ethernet, IPv4, UDP, BTH, path MTU, ICRC
PAYLOAD_BPS = RATE_BPS * 2048 / FRAME_BYTES
MOST_WAITING = 300  # frames: twice 2 ms of the port's time, and some small ones
QUEUED = 32  # WRITEs of 64 KiB: 17 ms of the port's time
PROBES = 100
LOOK_S = 20e-6  # between looks for completions: the engines may need the processor
MOST_S = 20
IDLE = {"timeout": 16, "retry_cnt": 7, "rnr_retry": 7}  # 0.27 s

pytestmark = pytest.mark.full("host-port-programs")


@pytest.fixture
def slow_links(pair):
    pair.shape("1Gbit", "256KiB")


@contextlib.contextmanager
def nothing_discarded(pair):
    """By the links that begin at hosts, where few frames wait."""
    before = _discards(pair)
    yield
    assert _discards(pair) == before
    assert all(each.most_waiting_packets <= MOST_WAITING for each in _links(pair).values())


def _links(pair):
    """The figures of the links that begin at hosts, by host."""
    halves = [half for half in pair.lab.plan.halves if half[1].address]
    with WireStage(pair.lab.directory) as stage:
        return {near.node: stage.link(number) for number, near, _ in halves}


def _discards(pair):
    return {node: figures.dropped_limit for node, figures in _links(pair).items()}


def rate_bps(printed):
    """The average that `ib_write_bw` prints, in MiB a second."""
    found = re.search(r"^ 65536 +\d+ +\S+ +([\d.]+)", printed, re.MULTILINE)
    assert found, printed
    return float(found[1]) * 8 * (1 << 20)


@pytest.mark.parametrize("queue_pairs", [1, 4, 16])
def test_a_program_fills_the_link(pair, slow_links, queue_pairs, full):
    """Without holding back, four queue pairs discarded 1.6 million frames in some seconds."""
    with nothing_discarded(pair):
        flags = ["-F", "-x", "0", "-q", str(queue_pairs), "-D", "2"]
        _, client = pair.converse("ib_write_bw", *flags)
    assert rate_bps(client.stdout) > 0.2 * PAYLOAD_BPS
    if full:
        assert rate_bps(client.stdout) >= 0.95 * PAYLOAD_BPS


def test_the_kernel_of_the_host_waits_for_the_port_too(pair, slow_links):
    """Pings beside a program, and a flood of datagrams."""
    with nothing_discarded(pair):
        command = ["ping", "-c", "200", "-i", "0.005", "-q", pair.address("h2")]
        pinging = pair.start("h1", *command, verbs=False)
        pair.converse("ib_write_bw", "-F", "-x", "0", "-D", "2")
        printed, _ = pinging.communicate(timeout=MOST_S)
    assert " 0% packet loss" in printed, printed
    pair.shape("50Mbit", "256KiB")  # far less than the kernel sends on a slow machine
    flood = ["iperf3", "-u", "-b", "0", "-l", "1400", "-t", "1", "-c", pair.address("h2")]
    with nothing_discarded(pair), sink(pair):
        sent = pair.run("h1", *flood, verbs=False)
    assert sent.returncode == 0, sent.stdout + sent.stderr


@contextlib.contextmanager
def sink(pair):
    """An iperf3 server on h2 that takes what a client sends."""
    server = pair.start("h2", "iperf3", "-s", "-1", verbs=False)
    try:
        pair.await_listener(server, 5201)
        yield
    finally:
        server.kill()
        server.communicate(timeout=MOST_S)


def test_a_short_message_beside_long_ones(pair, slow_links, full):
    """SENDs of 64 bytes beside a queue pair that always has WRITEs to send."""
    with nothing_discarded(pair):
        middle_s = patience.undisturbed(lambda: round_trip_s(pair), lambda s: full and s > 1e-3)
    assert middle_s < QUEUED * BYTES * 8 / RATE_BPS / 2
    if full:
        assert middle_s <= 1e-3


def round_trip_s(pair):
    """The median time from the post of a SEND to its completion."""
    with rnics.opened(pair.lab, "h1") as near, rnics.opened(pair.lab, "h2") as far:
        bulk = connected([near, far], attr=IDLE)
        probe = connected([near, far], attr=IDLE)
        waiting, took_s = 0, []
        deadline = time.monotonic() + MOST_S
        while len(took_s) < PROBES:
            probe[1].receive(64)
            probe[0].post(IBV_WR_SEND, probe[1], 64)
            began = time.monotonic()
            ended = ()
            while not ended:
                assert time.monotonic() < deadline, len(took_s)
                for _ in range(QUEUED - waiting):
                    bulk[0].post(IBV_WR_RDMA_WRITE, bulk[1], BYTES)
                    waiting += 1
                time.sleep(LOOK_S)
                ended = probe[0].poll()
                waiting -= len(done := bulk[0].poll())
                assert {each.status for each in (*ended, *done)} <= {0}
            took_s.append(time.monotonic() - began)
            probe[1].poll()
    return statistics.median(took_s)


def test_a_changed_rate_holds_at_once(pair, slow_links):
    """A tenth of the rate while a program sends: it slows down, and nothing is discarded."""
    with nothing_discarded(pair):
        flags = ["-F", "-x", "0", "-D", "4"]
        program = _beside(pair, flags)
        pair.shape("100Mbit", "256KiB")
        text = program()
    assert 0.05e9 < rate_bps(text) < 0.9 * PAYLOAD_BPS


def _beside(pair, flags):
    """Starts a pair of programs; returns what waits for the client's output."""
    server = pair.start("h2", "ib_write_bw", *flags)
    pair.await_listener(server)
    client = pair.start("h1", "ib_write_bw", *flags, pair.address("h2"))
    time.sleep(2)

    def output():
        try:
            printed, errors = client.communicate(timeout=MOST_S)
            assert client.returncode == 0, printed + errors
            return printed
        finally:
            for process in (client, server):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=2)
                process.kill()

    return output
