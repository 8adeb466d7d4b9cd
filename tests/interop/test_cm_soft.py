# SPDX-License-Identifier: GPL-2.0-or-later
"""RDMA CM between two soft hosts of a lab, with and without loss; each with its agent's thread."""

import contextlib
import threading
import time

import pytest

from softroce_lab import topology
from softroce_lab.experiment.hosts.rnics import opened
from softroce_lab.fabric import lab as fabric
from softroce_lab.faults import live
from softroce_lab.faults.resolve import links_of
from softroce_lab.rdmacm import CmAgent, CmTiming
from tests.interop import rping

PINGS, CONNECTIONS = 3, 5
TIMING = CmTiming(response_timeout=14, packet_life_time=12)  # 67 ms: both ends are near


@pytest.fixture(scope="module")
def lab():
    up = fabric.up(topology.load("two-hosts", name="cm-soft"), ephemeral=True)
    yield up
    up.down()


@pytest.fixture(scope="module")
def addresses(lab):
    with contextlib.ExitStack() as stack:
        found = []
        for node in lab.plan.plain_hosts[:2]:
            context = stack.enter_context(opened(lab, node.name))
            stack.enter_context(CmAgent(context, timing=TIMING))
            found.append(str(node.ports[0].address))
        yield found


def set_loss(lab, percent):
    links = links_of(lab.plan, "h1<->s1")
    words = ["loss", f"{percent}%"]

    def change(plan):
        cleared = live.clear_on(plan, links)
        return live.set_on(cleared, links, live.parse_impairments(words)) if percent else cleared

    lab.faults.change(change, time.monotonic_ns)


@pytest.mark.parametrize("percent", [0, 5])
def test_two_soft_hosts_connect_ping_and_part(lab, addresses, percent):
    here, there = addresses
    set_loss(lab, percent)
    texts = [b"rdma-ping-%d: " % n + b"x" * 50 for n in range(PINGS)]
    served = []
    try:
        with contextlib.closing(rping.listener(there)) as listening:
            for _ in range(CONNECTIONS):
                thread = threading.Thread(
                    target=lambda: served.append(rping.serve(listening, PINGS))
                )
                thread.start()
                rping.ping(here, there, texts)
                thread.join(30)
    finally:
        set_loss(lab, 0)
    assert served == CONNECTIONS * [[text + b"\0" for text in texts]]
