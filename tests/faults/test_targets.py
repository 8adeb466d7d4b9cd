# SPDX-License-Identifier: GPL-2.0-or-later
"""Patterns of links, nodes and ports."""

import pytest

from softroce_lab.errors import UserError
from softroce_lab.faults.model import FaultRule
from softroce_lab.faults.targets import parse_end_pattern
from softroce_lab.inputs.validation import validate
from softroce_lab.inputs.yaml_source import parse


def read(target: str) -> FaultRule:
    return validate(FaultRule, parse(f"name: x\n{target}\nloss: 1%\n", "x.yaml"))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("nodes: []", "2:8: an empty list can match nothing"),
        ("nodes: h1:eth1", "2:8: 'h1:eth1' is not a pattern of nodes"),
        ("nodes: [s1, S2]", "2:8: 'S2' is not a pattern of nodes"),
        ("ports: h1", "2:8: 'h1' is not a pattern of ports"),
        ("ports: 5", "2:8: 5 is not a pattern of ports"),
        ("links: [a->b, b]", "2:8: 'b' is not a pattern of links"),
        ("key: index", "1:1: the rule has no target"),
    ],
)
def test_targets_are_checked(text: str, error: str) -> None:
    with pytest.raises(UserError) as caught:
        read(text)
    assert str(caught.value).startswith(f"x.yaml:{error}")


@pytest.mark.parametrize(("text", "hint"), [("h1-", "quote a link"), ("h1>", "spine1 or h1:eth2")])
def test_what_a_shell_leaves_of_an_arrow(text: str, hint: str) -> None:
    with pytest.raises(UserError, match="is not a pattern") as caught:
        parse_end_pattern(text)
    assert hint in str(caught.value.hint)
