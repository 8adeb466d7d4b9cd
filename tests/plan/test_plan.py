# SPDX-License-Identifier: GPL-2.0-or-later
"""The plan's small conveniences."""

import pytest

from softroce_lab import topology

PLAN = topology.load("two-hosts")


def test_nodes_by_name() -> None:
    assert PLAN.node("s1") is PLAN.nodes[2]
    with pytest.raises(KeyError):
        PLAN.node("s2")


def test_hosts_in_order() -> None:
    assert [host.name for host in PLAN.hosts] == ["h1", "h2"]


def test_a_link_has_two_directed_halves() -> None:
    link = PLAN.links[1]
    assert link.halves == ((2, link.a, link.b), (3, link.b, link.a))


def test_a_port_prints_as_its_endpoint() -> None:
    assert str(PLAN.links[0].a) == "h1:eth1"
