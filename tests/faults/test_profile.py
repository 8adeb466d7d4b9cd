# SPDX-License-Identifier: GPL-2.0-or-later
"""Fault profiles: files of rules, and the ready ones."""

import re
from pathlib import Path

import pytest

from softroce_lab import paths, topology
from softroce_lab.errors import UserError
from softroce_lab.faults import profile
from softroce_lab.faults.drops import DropEvent
from softroce_lab.faults.live import parse_impairments, set_on
from softroce_lab.faults.model import FaultRule
from softroce_lab.faults.resolve import arm, links_of
from softroce_lab.faults.text import text

READY = {
    "corruption": "corrupt 0.1%",
    "duplicates": "duplicate 1%",
    "dying-rail": "down at 2s",
    "dying-switch": "down at 2s",
    "flapping-spine": "down at 1s for 50ms every 1s",
    "grey-link": "loss blackout at 0s for 20ms every 500ms",
    "incast-ecn": "rate 200Mbit limit 100 ecn 30",
    "long-haul": "delay 10ms 500us distribution normal",
    "lost-control": "loss random 10% only control,report",
    "lost-tail": "drop tail 1 iter 1",
    "lumina-retransmit": "drop qpn 1 psn 4 iter 1",
    "reordering": "reorder 1% by 100us only data",
    "spine-loss-1pct": "loss random 1%",
    "trimming": "rate 200Mbit limit 64KiB trim",
    "wifi-bursts": "loss gemodel 0.1% 10% 75% 0.001%",
}


@pytest.mark.parametrize(("name", "first"), READY.items())
def test_ready_profiles_fit_a_ready_topology(name: str, first: str) -> None:
    where = "dual-rail" if name == "dying-rail" else "leaf-spine"
    plan = arm(topology.load(where), profile.load(name))
    assert text(plan.faults[0]) == first


def test_every_ready_profile_is_tried() -> None:
    assert {file.stem for file in paths.FAULTS.iterdir()} == READY.keys()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", ": is empty"),
        ("rules: []", ":1:1: unknown key 'rules'\n  hint: known: faults"),
        ("faults: []", ":1:9: expected at least 1 entry, found 0"),
        ("name: x\ntopology: {}\nfaults: []", ":1:1: this is a topology, not a fault profile"),
        ("faults: {}", ":1:9: expected a list, found a mapping"),
        ("faults:\n- {name: a, links: a->b}", ":2:3: the rule has no effect"),
        ("faults:\n- name: a\n  links: a->b\n  loss: 1", ":4:9: percentage '1' has no unit"),
    ],
)
def test_mistakes_are_pointed_at(tmp_path: Path, content: str, error: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(content)
    with pytest.raises(UserError) as caught:
        profile.load(file)
    assert str(caught.value).startswith(f"{file}{error}")


def test_what_only_the_topology_reveals_is_pointed_at_in_the_profile(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("faults:\n- name: a\n  links: x*->y\n  loss: 1%\n")
    rules = profile.load(file)
    with pytest.raises(UserError, match=rf"^{file}:3:10: pattern 'x\*->y' matches no link"):
        arm(topology.load("two-hosts"), rules)


def test_the_schema_tells_editors_what_the_models_accept() -> None:
    schema = profile.schema()
    assert schema["required"] == ["faults"]
    assert schema["title"] == "softroce_lab fault profile"
    text, rule = schema["$defs"]["FaultRule"]["anyOf"]
    assert text["type"] == "string"
    assert list(rule["properties"]) == FaultRule.written_keys()
    assert rule["additionalProperties"] is False
    words, keys = schema["$defs"]["DropEvent"]["anyOf"]
    assert words == {"type": "string"}
    assert list(keys["properties"]) == DropEvent.written_keys()
    assert "null" not in str(schema["$defs"])


PAGE = (paths.PROJECT_ROOT / "docs/howto/fabric.md").read_text()


@pytest.mark.parametrize("words", re.findall(r"lab fault set '(.+?)' (.+)", PAGE))
def test_the_commands_of_the_page_hold(words: tuple[str, str]) -> None:
    plan = topology.load("leaf-spine")
    pattern, what = words
    assert set_on(plan, links_of(plan, pattern), parse_impairments(what.split())).faults
