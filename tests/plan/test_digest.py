# SPDX-License-Identifier: GPL-2.0-or-later
"""Equal plans have equal digests, different plans different ones."""

import dataclasses

import pytest

from softroce_lab import topology
from softroce_lab.faults.live import parse_impairments, set_on
from softroce_lab.plan.plan import Node, Plan, with_digest

PLAN = topology.load("leaf-spine")


def test_the_digest_is_that_of_the_rest_of_the_plan() -> None:
    assert with_digest(PLAN) == PLAN
    assert with_digest(dataclasses.replace(PLAN, digest="other")) == PLAN
    assert topology.load("leaf-spine").digest == PLAN.digest


def readdressed(node: Node) -> Node:
    (port,) = node.ports
    return dataclasses.replace(node, ports=(dataclasses.replace(port, address="10.9.9.9"),))


@pytest.mark.parametrize(
    "plan",
    [
        dataclasses.replace(PLAN, name="other"),
        dataclasses.replace(PLAN, seed=2),
        dataclasses.replace(PLAN, mtu=1500),
        dataclasses.replace(PLAN, load_balancing="spray"),
        dataclasses.replace(PLAN, nodes=PLAN.nodes[::-1]),
        dataclasses.replace(PLAN, nodes=(readdressed(PLAN.nodes[0]), *PLAN.nodes[1:])),
        dataclasses.replace(PLAN, links=PLAN.links[:-1]),
    ],
)
def test_any_change_shows(plan: Plan) -> None:
    assert with_digest(plan).digest != PLAN.digest


def test_any_fault_shows() -> None:
    words = ("loss 1%", "loss 2%", "corrupt 1%", "drop tail 1", "drop tail 2", "down", "delay 1ms")
    plans = [set_on(PLAN, [0], parse_impairments(text.split())) for text in words]
    assert len({plan.digest for plan in [PLAN, *plans]}) == len(words) + 1
