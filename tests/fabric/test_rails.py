# SPDX-License-Identifier: GPL-2.0-or-later
"""A lab of hosts with two rails, in both families, through the XDP switches."""

import subprocess

import pytest

from softroce_lab import topology
from softroce_lab.fabric import lab
from softroce_lab.fabric.net import links


@pytest.fixture(scope="module")
def rails():
    plan = topology.load("dual-rail", name="t-rails")
    with lab.up(plan, ephemeral=True) as running:
        yield running
        running.down()


FAMILIES = [
    "address",
    pytest.param(
        "address6", marks=pytest.mark.skipif(not links.has_ipv6(), reason="no IPv6 in the kernel")
    ),
]


def answers(running, host, target, source=None):
    """How many of three pings from `host` are answered."""
    command = ["ping", "-n", "-q", "-c", "3", "-i", "0.02", "-W", "1"]
    command += ["-I", source] if source else []
    with running.enter(host):
        result = subprocess.run([*command, target], capture_output=True, text=True, timeout=20)
    return int(result.stdout.partition(" received")[0].rpartition(" ")[2])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_plane_carries_its_rail_alone(rails, family):
    def forwarded():
        counts = rails.xdp.counters()
        return [
            sum(counts[port.ifindex].rx_packets for port in rails.plan.node(switch).ports)
            for switch in ("leaf1-1", "leaf2-1")
        ]

    before = forwarded()
    assert answers(rails, "h1", getattr(rails.plan.node("h2").ports[1], family)) == 3
    one, two = (now - then for now, then in zip(forwarded(), before, strict=True))
    assert (one, two) == (0, 6)


@pytest.mark.parametrize("family", FAMILIES)
def test_planes_without_a_common_switch_do_not_reach_each_other(rails, family):
    """What leaves from a rail's address leaves by that rail, where nobody knows the target."""
    first, second = (getattr(port, family) for port in rails.plan.node("h1").ports)
    assert answers(rails, "h1", getattr(rails.plan.node("h3").ports[0], family), second) == 0
    assert answers(rails, "h1", getattr(rails.plan.node("h3").ports[1], family), second) == 3
    assert answers(rails, "h1", getattr(rails.plan.node("h3").ports[0], family), first) == 3
    spoofed = sum(count.spoofed for count in rails.xdp.counters().values())
    assert spoofed == 0
