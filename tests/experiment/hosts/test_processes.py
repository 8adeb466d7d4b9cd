# SPDX-License-Identifier: GPL-2.0-or-later
"""Host processes: a dead peer is noticed, a port has one owner, failures have words."""

import os
import secrets
import signal
import time

import pytest

from softroce_lab import topology
from softroce_lab.errors import RunError, ibv_wc_status
from softroce_lab.experiment.hosts import processes
from softroce_lab.fabric import lab as fabric
from softroce_lab.transports import registry
from tests.transfers import host_process, pair, prepare

PATIENCE_S = 60.0


@pytest.fixture
def lab():
    made = fabric.up(topology.load("two-hosts", name=f"t{secrets.token_hex(3)}"), ephemeral=True)
    yield made
    made.down()


@pytest.fixture
def endless(tmp_path):
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(100 << 30)
    return path


@pytest.mark.full("killed-peer")
@pytest.mark.parametrize("transport", registry.transports(registry.Kind.SESSION))
@pytest.mark.parametrize("victim", [0, 1])
def test_killed_peer_ends_in_retry_exc(lab, endless, transport, victim, full):
    """SIGKILL in mid-transfer ends in IBV_WC_RETRY_EXC_ERR within 2 s; in full 25 times each."""
    for _ in range(25 if full else 1):
        ended_s = kill_in_mid_transfer(lab, endless, transport, victim)
        assert ended_s < (2.0 if full else PATIENCE_S)


def kill_in_mid_transfer(lab, endless, transport, victim):
    both = pair(lab, transport)
    try:
        processes.start(both)
        prepare(both, endless, 100 << 30, hashed=False)
        processes.begin(both)
        both[1].expect("progress")
        os.kill(both[victim].pid, signal.SIGKILL)
        killed = time.monotonic()
        left = both[1 - victim]
        left.expect("done", timeout_s=PATIENCE_S)
        ended_s = time.monotonic() - killed
        _, records = left.finish()
        assert int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR) in records.ends["status"]
        return ended_s
    finally:
        for host in both:
            host.close()


def test_port_has_one_owner(lab):
    both = pair(lab, "csa_ud")
    intruder = host_process(lab, lab.plan.node("h1"), "csa_ud")
    try:
        processes.start(both)
        with pytest.raises(RunError, match="h1: the port eth1 is in use") as caught:
            processes.start([intruder])
        assert str(both[0].pid) in str(caught.value)
    finally:
        for host in (*both, intruder):
            host.close()


def test_dead_host_has_last_words(lab):
    host = host_process(lab, lab.plan.node("h1"), "csa_ud")
    try:
        host.tell("nonsense", {})
        with pytest.raises(RunError, match="nonsense"):
            host.expect("ready")
    finally:
        host.close()
