# SPDX-License-Identifier: GPL-2.0-or-later
"""Failures of NICs and ports in one sentence."""

import pytest

from softroce_lab import topology
from softroce_lab.errors import UserError
from softroce_lab.faults import lines
from softroce_lab.faults.profile import ProfileFile
from softroce_lab.faults.resolve import FaultRules, arm
from softroce_lab.inputs import yaml_source
from softroce_lab.inputs.validation import validate
from softroce_lab.paths import TOPOLOGIES

MS = 10**6


@pytest.fixture(scope="module")
def plan():
    """Four hosts with two rails, in two planes."""
    return topology.load(TOPOLOGIES / "dual-rail.yaml")


def armed(plan, *texts):
    listed = "".join(f"  - {text}\n" for text in texts)
    source = yaml_source.parse(f"faults:\n{listed}", "x.yaml")
    return arm(plan, FaultRules(tuple(validate(ProfileFile, source).faults), source))


def on(plan, *texts):
    found = armed(plan, *texts)
    return [rule.on(found) for rule in lines.rules(found.faults)]


@pytest.mark.parametrize(
    ("text", "what", "link"),
    [
        ("nic down h1:eth2 at 3ms for 2ms", "down at 3ms for 2ms", "h1<->leaf2-1"),
        ("nic down h1:eth1", "down", "h1<->leaf1-1"),
        ("nic  grey h2:eth1  at 1s", "loss blackout at 1s", "h2<->leaf1-1"),
        ("nic flap h1:eth1 for 1ms every 5ms", "down at 0s for 1ms every 5ms", "h1<->leaf1-1"),
        ("port down h4:eth2", "down", "h4<->leaf2-2"),
    ],
)
def test_a_sentence_is_a_rule(plan, text, what, link):
    (line,) = on(plan, text)
    assert line.split("  (")[0] == what
    assert line.split(" on ")[1] == link


def test_the_same_sentence_twice_is_refused(plan):
    with pytest.raises(UserError, match=r"x\.yaml:3:5: rule name 'nic-down-h1-eth1' is used twice"):
        armed(plan, "nic down h1:eth1", "nic down h1:eth1")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "nic down",
            "2:5: 'nic down' lacks what fails, or where\n  hint: such as: nic down h1:",
        ),
        ("nic dwn h1:eth1", "2:5: a nic cannot be 'dwn'\n  hint: did you mean 'down'?"),
        ("port flap h1:eth1 for 1ms", "2:5: 'port flap h1:eth1 for 1ms' lacks how often"),
        ("nic down h1:eth1 after 3ms", "2:5: unexpected 'after'\n  hint: known: at, for, every"),
        ("nic down h9:eth1", "2:5: pattern 'h9:eth1' matches no NIC of a host"),
        ("nic down h1:eth1 every 3ms", "2:5: 'every' needs 'for'"),
        ("{name: x, nic: h1:eth1, down: true}", "2:15: 'nic' does not belong here"),
    ],
)
def test_mistakes_are_pointed_at(plan, text, error):
    with pytest.raises(UserError) as caught:
        armed(plan, text)
    assert str(caught.value).startswith(f"x.yaml:{error}")


def test_a_map_says_the_same(plan):
    words = armed(plan, "nic down h1:eth1 at 3ms for 2ms")
    keys = armed(plan, "{name: x, nics: h1:eth1, down: true, at: 3ms, for: 2ms}")
    for one, other in zip(words.faults, keys.faults, strict=True):
        assert (one.directed_link, one.effect, one.window) == (
            other.directed_link, other.effect, other.window,
        )  # fmt: skip
    assert {fault.window.begin_ns for fault in words.faults} == {3 * MS}
