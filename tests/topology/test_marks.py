# SPDX-License-Identifier: GPL-2.0-or-later
import pytest

from softroce_lab import topology
from softroce_lab.faults import lines
from softroce_lab.plan.effects import Delay, Down, Fault, Queue, RandomLoss, Window
from softroce_lab.topology import marks

PLAN = topology.load("leaf-spine")
LOSS = RandomLoss(round(0.01 * 2**64))


def fault(directed_link, effect, **more):
    return Fault("r", 0, directed_link, "identity", 1, effect, **more)


def test_a_link_without_faults_has_no_mark():
    found = marks.marks([fault(9, LOSS)], lines.texts)
    assert list(found) == [9]
    assert found[9].texts == ("loss random 1%",)
    assert not found[9].down


@pytest.mark.parametrize(("now_ns", "acts"), [(5, False), (10, True), (29, True), (30, False)])
def test_of_a_lab_that_is_up_the_present_counts(now_ns, acts):
    flap = fault(1, Down(), window=Window(10, 20))
    mark = marks.marks([flap], lines.texts, now_ns)[1]
    assert (mark.down, mark.acts, mark.label) == (acts, acts, "down" if acts else "")


@pytest.mark.parametrize(
    ("effect", "label"),
    [
        (LOSS, "1 % loss"),
        (Delay(10_000_000, 0, "uniform", True), "10 ms"),
        (Delay(10_000_000, 500_000, "normal", True), "10 ms±500 us"),
        (Queue(10**9, None, 100, None, None, False), "1 Gbit/s"),
        (Down(), "down"),
    ],
)
def test_labels_are_short(effect, label):
    assert marks.short(effect) == label


def test_the_legend_joins_the_links_of_one_fault():
    found = marks.marks([fault(8, LOSS), fault(9, LOSS), fault(10, LOSS)], lines.texts)
    assert marks.legend(PLAN, found) == [("loss random 1%", "leaf1<->spine1, leaf1->spine2")]


def test_a_summary_counts_every_link_once():
    plan = topology.load("fat-tree-k4")
    found = marks.marks([fault(0, LOSS), fault(2, Down())], lines.texts)
    shown = marks.summary(plan, found)
    counts = [int(line.split()[1]) for line in shown if line.strip().startswith("|")]
    assert sum(counts) == len(plan.links)
    assert any("2 with faults, 1 down" in line for line in shown)
    within = marks.summary(topology.load("dumbbell"), {})
    assert any("1 link, within the tier" in line for line in within)


@pytest.mark.parametrize("name", ["two-hosts", "leaf-spine", "fat-tree-k4", "dumbbell", "clos"])
def test_every_node_stands_in_its_tier_once(name):
    plan = topology.load(name)
    tiers = marks.rows(plan)
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
    switches, hosts = marks.rows(topology.load(file))
    assert [node.name for node in switches] == ["s2", "s1"]
    assert [node.name for node in hosts] == ["h1", "h2"]
