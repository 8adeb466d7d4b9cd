# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/architecture.md leads to code that is there: the walks name files and functions."""

import re

import pytest

from softroce_lab.paths import PROJECT_ROOT

PAGE = (PROJECT_ROOT / "docs/architecture.md").read_text()
STEP = re.compile(r"^\| \d+ \| .* \| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)
PLACE = re.compile(
    r"`((?:softroce_lab|native|xdp|tests|fabric|cli|plan|telemetry|experiment|check|engine)/[\w/.]+)`"
)
ROOTS = ("", "softroce_lab/", "native/")


def defines(text, name):
    """Whether a file defines a function, or in C++ a method, of this name."""
    name = re.escape(name)
    return re.search(rf"^\s*def {name}\(|^(?!return)[\w:<>*& ]*\b{name}\(", text, re.M)


def test_both_walks_have_their_steps():
    assert len(STEP.findall(PAGE)) >= 20


@pytest.mark.parametrize(("file", "function"), STEP.findall(PAGE))
def test_a_step_names_a_function_of_its_file(file, function):
    assert defines((PROJECT_ROOT / file).read_text(), function)


@pytest.mark.parametrize("place", sorted(set(PLACE.findall(PAGE))))
def test_a_place_exists(place):
    assert any((PROJECT_ROOT / root / place).exists() for root in ROOTS)


@pytest.mark.parametrize("line", ["x = decide(rule);", "# def decide(", "return decide(step)"])
def test_a_use_is_no_definition(line):
    assert not defines(line, "decide")


@pytest.mark.parametrize("line", ["def decide(", "    def decide(self", "int A::decide(int x) {"])
def test_a_definition_is_found(line):
    assert defines(line, "decide")
