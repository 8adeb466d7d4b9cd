# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernel routers and nftables, beside which the lab is measured."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from softroce_lab import _native, topology
from softroce_lab.bench.kernel_routers import KernelRouters
from tests import session

PACKETS = 20_000
FIRST_TRIES = 20  # of 0.3 s


@pytest.fixture(params=["two-hosts", "path"])
def routers(request):
    plan = topology.load(request.param, name="routers")
    with KernelRouters(plan) as routers:
        for ends in (plan.hosts[0], plan.hosts[-1]), (plan.hosts[-1], plan.hosts[0]):
            await_first(routers, *ends)
        yield plan, routers


def await_first(routers, source, destination):
    """Until a datagram arrives: a busy machine takes its time to resolve addresses."""
    sender, receiver = routers.udp_pair(source, destination)
    with sender, receiver:
        for _ in range(FIRST_TRIES):
            sender.send(b"first")
            if drained(receiver):
                return
    raise AssertionError(f"nothing gets from {source.name} to {destination.name}")


def exchange(plan, routers, source, destination, count):
    """How many of `count` small datagrams arrive."""
    sender, receiver = routers.udp_pair(source, destination)
    with sender, receiver:
        arrived = 0
        for number in range(count):
            sender.send(number.to_bytes(4, "big"))
            if number % 100 == 99:  # before the socket's buffer is full
                arrived += drained(receiver, wait_s=0.01)
        return arrived + drained(receiver)


def drained(receiver, wait_s=0.3):
    """How many datagrams come until none does for `wait_s`."""
    receiver.settimeout(wait_s)
    arrived = 0
    while True:
        try:
            receiver.recv(64)
        except TimeoutError:
            return arrived
        arrived += 1


def test_datagrams_cross_both_ways(routers):
    plan, kernel = routers
    ends = plan.hosts[0], plan.hosts[-1]
    for source, destination in (ends, ends[::-1]):
        assert exchange(plan, kernel, source, destination, 100) == 100


def test_one_in_a_hundred_is_lost(routers):
    plan, kernel = routers
    router = next(node for node in plan.nodes if node.kind == "switch").name
    kernel.lose(router, 100)
    arrived = exchange(plan, kernel, plan.hosts[0], plan.hosts[-1], PACKETS)
    assert 130 < PACKETS - arrived < 270  # 200 expected, five standard deviations


def test_bulk_traffic_arrives(routers):
    plan, kernel = routers
    sender, receiver = kernel.udp_pair(plan.hosts[0], plan.hosts[-1])
    with sender, receiver:
        for moderate in (False, True):
            sent, received, ns = bulk(sender, receiver, moderate=moderate)
            assert 0 < received <= sent
            assert 50_000_000 <= ns < 1_000_000_000


def bulk(sender, receiver, *, moderate):
    """Until something came: on a busy machine 50 ms may pass before a thread has its turn."""
    sent = received = 0
    for _ in range(100):
        more, came, ns = _native.udp_traffic(
            sender.fileno(), receiver.fileno(), 2048, 50_000_000, moderate=moderate
        )
        sent, received = sent + more, received + came
        if received:
            break
    return sent, received, ns


def namespaces():
    """Network namespaces that a process of this session is in, or holds."""
    found = {each for each in session.held() if each.startswith("net:[")}
    for process in session.members():
        with contextlib.suppress(OSError):  # it ended meanwhile
            found.add(os.readlink(process / "ns/net"))
    return found


def test_all_of_it_vanishes_with_its_maker():
    script = (
        "import os, signal\n"
        "from softroce_lab import topology\n"
        "from softroce_lab.bench.kernel_routers import KernelRouters\n"
        "routers = KernelRouters(topology.load('path', name='routers'))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    before = namespaces(), set(os.listdir("/sys/class/net")), named()
    done = subprocess.run([sys.executable, "-c", script], timeout=30, check=False)
    assert done.returncode == -9
    assert (namespaces(), set(os.listdir("/sys/class/net")), named()) == before


def named():
    folder = Path("/run/netns")
    return set(folder.iterdir()) if folder.is_dir() else set()
