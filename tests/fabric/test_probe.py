# SPDX-License-Identifier: GPL-2.0-or-later
import contextlib
import os
import socket

import pytest

from softroce_lab import topology
from softroce_lab.errors import RunError
from softroce_lab.fabric import probe
from softroce_lab.fabric.net import links, netns


@pytest.fixture
def plan():
    return topology.load("two-hosts")


@pytest.fixture
def namespaces(plan):
    """The plan's links, without XDP programs."""
    fds = {node.name: netns.create() for node in plan.nodes}
    links.create(plan.links, plan.mtu, fds)
    for node in plan.nodes:
        with netns.entered(fds[node.name]):
            links.configure(node, links.gateways(plan))
    yield fds
    for fd in fds.values():
        os.close(fd)


def ignore():
    pass


def test_a_probe_leaves_every_port(plan, namespaces):
    seen = set()
    with contextlib.ExitStack() as stack:
        listeners = {}
        for node in plan.nodes:
            with netns.entered(namespaces[node.name]):
                listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
                listener.setblocking(False)
            listeners[node.name] = stack.enter_context(listener)

        def arrivals():
            for listener in listeners.values():
                with contextlib.suppress(BlockingIOError):
                    while frame := listener.recv(2048):
                        seen.add(int.from_bytes(frame[22:26], "big"))
            return seen

        probe.prove(plan, namespaces, 7, arrivals, ignore)
    assert seen == {port.ifindex for node in plan.nodes for port in node.ports}


def test_exactly_the_dead_links_are_named(plan, namespaces, monkeypatch):
    monkeypatch.setattr(probe, "_ROUND_S", 0.01)
    alive = {plan.links[0].a.ifindex, plan.links[0].b.ifindex, plan.links[1].a.ifindex}
    with pytest.raises(RunError) as error:
        probe.prove(plan, namespaces, 7, lambda: alive, ignore)
    assert error.value.what == "no probe came back over: h2:eth1 - s1:p2"
