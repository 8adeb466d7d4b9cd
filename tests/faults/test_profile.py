# SPDX-License-Identifier: GPL-2.0-or-later
"""Fault profiles: files of rules, and the ready ones."""

from pathlib import Path

import pytest

from softroce_lab import paths, topology
from softroce_lab.errors import UserError
from softroce_lab.faults import profile
from softroce_lab.faults.effects import RandomLoss
from softroce_lab.faults.resolve import arm


def test_the_ready_profile_arms_the_spine_links_of_the_demo() -> None:
    plan = arm(topology.load("leaf-spine"), profile.load("spine-loss-1pct"))
    assert [f.directed_link for f in plan.faults] == list(range(8, 16))
    assert {f.effect for f in plan.faults} == {RandomLoss(184467440737095516)}
    assert {f.key for f in plan.faults} == {"identity"}


def test_every_ready_profile_loads() -> None:
    files = list(paths.FAULTS.iterdir())
    assert files
    for file in files:
        assert profile.load(file).rules


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", ": is empty"),
        ("rules: []", ":1:1: unknown key 'rules'\n  hint: known: faults"),
        ("faults: []", ":1:9: expected at least 1 entry, found 0"),
        ("faults: {}", ":1:9: expected a list, found a mapping"),
        ("faults:\n- {name: a, links: a->b}", ":2:3: the rule has no effect"),
        ("faults:\n- name: a\n  links: a->b\n  loss: 1", ":4:9: percentage '1' has no unit"),
    ],
)
def test_mistakes_are_pointed_at(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        profile.load(file)
    assert str(caught.value).startswith(f"{file}{error}")


def test_what_only_the_topology_reveals_is_pointed_at_in_the_profile(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("faults:\n- name: a\n  links: x*->y\n  loss: 1%\n")
    rules = profile.load(file)
    with pytest.raises(UserError, match=rf"^{file}:3:10: pattern 'x\*->y' matches no link"):
        arm(topology.load("two-hosts"), rules)


def test_an_unknown_profile_lists_the_known() -> None:
    with pytest.raises(UserError, match="no fault profile called 'spine-loss'") as caught:
        profile.load("spine-loss")
    assert caught.value.hint == "did you mean 'spine-loss-1pct'?"


def test_the_schema_tells_editors_what_the_models_accept() -> None:
    schema = profile.schema()
    assert schema["required"] == ["faults"]
    assert schema["title"] == "softroce_lab fault profile"
