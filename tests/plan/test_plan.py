# SPDX-License-Identifier: GPL-2.0-or-later
"""The plan's small conveniences."""

import dataclasses

import pytest

from softroce_lab import topology

PLAN = topology.load("two-hosts")


@pytest.mark.parametrize("name", ["halves", "hosts", "plain_hosts", "guests", "kernel_hosts"])
def test_what_follows_from_the_fields_is_found_once_and_is_no_field(name: str) -> None:
    plan = dataclasses.replace(PLAN)
    assert getattr(plan, name) is getattr(plan, name)
    assert plan == PLAN
    fewer = dataclasses.replace(plan, nodes=PLAN.nodes[1:], links=PLAN.links[1:])
    assert fewer.plain_hosts == fewer.hosts == (PLAN.nodes[1],)
    assert fewer.halves == PLAN.halves[2:]
