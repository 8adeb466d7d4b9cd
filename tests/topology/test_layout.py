# SPDX-License-Identifier: GPL-2.0-or-later
import pytest

from softroce_lab import topology
from softroce_lab.topology.marks import rows


@pytest.mark.parametrize("name", ["two-hosts", "leaf-spine", "fat-tree-k4", "dumbbell", "clos"])
def test_every_node_stands_in_its_tier_once(name):
    plan = topology.load(name)
    tiers = rows(plan)
    assert sorted(n.name for tier in tiers for n in tier) == sorted(n.name for n in plan.nodes)
    numbers = [{node.tier for node in tier} for tier in tiers]
    assert numbers == [{number} for number in reversed(range(len(tiers)))]


def test_a_switch_stands_above_what_it_leads_to(tmp_path):
    """Written in the other order, s2 is still above h1, on the left."""
    file = tmp_path / "crossed.yaml"
    file.write_text(
        "name: x\ntopology:\n  defaults: {kind: switch}\n"
        "  nodes: {h1: {kind: host}, h2: {kind: host}, s1: , s2: }\n"
        "  links:\n"
        '    - endpoints: ["h1:a", "s2:a"]\n    - endpoints: ["h2:a", "s1:a"]\n'
        '    - endpoints: ["s1:b", "s2:b"]\n'
    )
    switches, hosts = rows(topology.load(file))
    assert [node.name for node in switches] == ["s2", "s1"]
    assert [node.name for node in hosts] == ["h1", "h2"]
