# SPDX-License-Identifier: GPL-2.0-or-later
"""Loading by path and by name."""

from pathlib import Path

import pytest

from softroce_lab import paths, topology
from softroce_lab.errors import UserError


def test_name_and_seed_can_be_given() -> None:
    plan = topology.load("two-hosts", name="mine", seed=9)
    assert (plan.name, plan.seed, plan.nodes[0].namespace) == ("mine", 9, "mine-h1")


def test_a_mistake_is_pointed_at_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text("name: x\ntopology:\n  generator: {kind: leaf-spine}\n")
    with pytest.raises(UserError) as caught:
        topology.load(file)
    assert str(caught.value) == f"{file}:3:14: key 'leaves' is missing"


def test_a_profile_is_no_topology() -> None:
    profile = paths.FAULTS / "lost-tail.yaml"
    with pytest.raises(UserError, match=r":\d+:1: this is a fault profile, not a top") as caught:
        topology.load(profile)
    assert "lab up TOPOLOGY --faults FILE" in str(caught.value.hint)
