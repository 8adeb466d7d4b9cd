# SPDX-License-Identifier: GPL-2.0-or-later
"""The plan's small conveniences."""

import dataclasses

import pytest

from softroce_lab import topology

PLAN = topology.load("two-hosts")


def test_nodes_by_name() -> None:
    assert PLAN.node("s1") is PLAN.nodes[2]
    with pytest.raises(KeyError):
        PLAN.node("s2")


def test_hosts_in_order() -> None:
    assert [host.name for host in PLAN.hosts] == ["h1", "h2"]


@pytest.mark.parametrize("name", ["halves", "hosts", "plain_hosts", "guests", "kernel_hosts"])
def test_what_follows_from_the_fields_is_found_once_and_is_no_field(name: str) -> None:
    plan = dataclasses.replace(PLAN)
    assert getattr(plan, name) is getattr(plan, name)
    assert plan == PLAN
    fewer = dataclasses.replace(plan, nodes=PLAN.nodes[1:], links=PLAN.links[1:])
    assert fewer.plain_hosts == fewer.hosts == (PLAN.nodes[1],)
    assert fewer.halves == PLAN.halves[2:]


def test_a_link_has_two_directed_halves() -> None:
    link = PLAN.links[1]
    assert link.halves == ((2, link.a, link.b), (3, link.b, link.a))


def test_a_port_prints_as_its_endpoint() -> None:
    assert str(PLAN.links[0].a) == "h1:eth1"
