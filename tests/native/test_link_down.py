# SPDX-License-Identifier: GPL-2.0-or-later
"""A host whose interface goes down for a moment: its engine lives on, the transfer ends well."""

import os
import secrets
import time
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from softroce_lab import topology
from softroce_lab.experiment.hosts import processes as hosts
from softroce_lab.fabric import lab as fabric
from softroce_lab.transports import registry
from tests.transfers import pair, prepare

SIZES = (64 << 20, 256 << 20, 1 << 30)  # the first is enough, but on a busy machine
DOWN_S = 0.3


@pytest.fixture
def lab():
    made = fabric.up(topology.load("two-hosts", name=f"t{secrets.token_hex(3)}"), ephemeral=True)
    yield made
    made.down()


def set_link(lab, node, state):
    with lab.enter(node), IPRoute() as route:
        route.link("set", index=route.link_lookup(ifname="eth1")[0], state=state)


def cpu_s(pid):
    """Seconds of processor time that a process has had: utime and stime of proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("transport", registry.transports(registry.Kind.SESSION))
def test_link_down_for_a_moment(lab, tmp_path, transport, victim):
    path = tmp_path / "data"
    path.write_bytes(bytes(range(256)) * 4096 * 64)
    for size in SIZES:
        os.truncate(path, size)
        busy_s, reports = transfer(lab, path, transport, victim)
        if reports[victim].counters["tx_link_down"]:
            break  # otherwise it was over before this process had the link down
    assert busy_s < DOWN_S / 2, "the engine spins while its port is down"
    assert reports[victim].counters["tx_link_down"] > 0


def transfer(lab, path, transport, victim):
    """Processor time of the victim while its link is down, and both hosts' reports."""
    both = pair(lab, transport)
    try:
        hosts.start(both)
        prepare(both, path, path.stat().st_size)
        hosts.begin(both)
        both[1].expect("progress")
        set_link(lab, both[victim].node.name, "down")
        before_s = cpu_s(both[victim].pid)
        time.sleep(DOWN_S)
        busy_s = cpu_s(both[victim].pid) - before_s
        set_link(lab, both[victim].node.name, "up")
        for host in both:
            host.expect("done", timeout_s=120)
        reports = [host.finish()[0] for host in both]
        assert reports[0].sha256 == reports[1].sha256
    finally:
        for host in both:
            host.close()
    return busy_s, reports
