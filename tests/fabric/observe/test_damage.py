# SPDX-License-Identifier: GPL-2.0-or-later
"""What somebody removes from a lab by hand is found, by link, with what to do about it."""

import subprocess
from pathlib import Path

import pytest

from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric.observe import damage


@pytest.fixture
def lab(two_hosts, traces):
    """h1 - s1 - h2."""
    with fabric.owned(two_hosts) as made:
        yield made


def ip(lab, node, *arguments):
    with lab.enter(node):
        subprocess.run(["ip", *arguments], check=True)


def found(lab):
    return damage.of_lab(lab.plan.name, lab.ledger.history, lab.plan)


def test_a_removed_link_is_one_loss_with_both_its_ends(lab):
    ip(lab, "s1", "link", "del", "p2")
    (lost,) = found(lab)
    assert lost.what == "the link s1:p2 - h2:eth1 is gone" or "h2:eth1 - s1:p2" in lost.what
    assert lost.directed_links == {2, 3}
    assert lost.hint == f"lab down {lab.plan.name}, and up again"


def test_a_port_that_is_down_comes_up_by_the_command_in_its_hint(lab):
    ip(lab, "s1", "link", "set", "p1", "down")
    (lost,) = found(lab)
    assert lost.what == "the port s1:p1 is down"
    assert lost.directed_links == {0, 1}
    assert lost.hint == f"lab exec --lab {lab.plan.name} s1 -- ip link set p1 up"
    assert damage.on_links([lost], {2, 3}) is None
    assert "s1:p1 is down" in damage.on_links([lost], {1, 2}).what
    ip(lab, "s1", *lost.hint.partition(" -- ip ")[2].split())
    assert found(lab) == []


def test_a_port_without_the_labs_program(lab):
    mode = {"generic": "xdpgeneric", "native": "xdpdrv"}[lab.mode]
    ip(lab, "h1", "link", "set", "eth1", mode, "off")
    (lost,) = found(lab)
    assert lost.what == "the port h1:eth1 has lost its XDP program"


def test_a_namespace_without_its_name(lab):
    name = lab.plan.node("h1").namespace
    subprocess.run(["ip", "netns", "delete", name], check=True)
    assert not Path("/run/netns", name).exists()
    assert [each.what for each in found(lab)] == [f"the namespace {name} is gone"]
