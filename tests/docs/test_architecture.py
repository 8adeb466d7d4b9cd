# SPDX-License-Identifier: GPL-2.0-or-later
"""The page on architecture leads to code that exists: its table, its walks, the places it names."""

import re

import pytest

from softroce_lab.paths import PROJECT_ROOT

PAGE = (PROJECT_ROOT / "docs/contributing/architecture.md").read_text()
TABLE = PAGE.partition("## Where do I change ...?")[2].partition("\n## ")[0]
ROW = re.compile(r"^\| .+ \| `([^`]+)` \| `(\w+)` \|$", re.MULTILINE)
STEP = re.compile(r"^\| \d+ \| .+ \| `([^`]+)` \| `(\w+)` \|$", re.MULTILINE)
NAMED = re.compile(r"((?:`\w+`(?:, | and | or )?)+) (?:in|\()\s*`([\w/.]+\.\w+)`")
PLACE = re.compile(r"`((?:softroce_lab|native|xdp|tests|docs)/[a-z0-9_/.]*)`")


def defines(text, name):
    """Whether a file defines a function, a type, a table or a macro of this name."""
    name = re.escape(name)
    function = rf"\s*def {name}\(|(?!return)[\w:<>*& ]*\b{name}\("
    python = rf"class {name}\b|{name}(?:: [^=\n]+)? = "
    native = rf"(?:class|struct|enum|enum class|#define) {name}\b|constexpr [\w:]+ {name}\b"
    return re.search(rf"^(?:{function}|{python}|{native})", text, re.MULTILINE)


def test_the_walks_and_the_table_are_there():
    assert len(STEP.findall(PAGE)) >= 16
    assert len(ROW.findall(TABLE)) == 26


@pytest.mark.parametrize(("file", "name"), [*STEP.findall(PAGE), *ROW.findall(TABLE)])
def test_a_file_defines_what_the_page_names(file, name):
    assert defines((PROJECT_ROOT / file).read_text(), name)


@pytest.mark.parametrize(("names", "file"), NAMED.findall(PAGE))
def test_a_name_is_one_of_its_file(names, file):
    if "/" not in file:
        return  # in the same folder as the one before
    text = (PROJECT_ROOT / file).read_text()
    for name in re.findall(r"`(\w+)`", names):
        assert re.search(rf"\b{name}\b", text), name


@pytest.mark.parametrize("place", sorted(set(PLACE.findall(PAGE))))
def test_a_place_exists(place):
    assert (PROJECT_ROOT / place).exists()


@pytest.mark.parametrize("line", ["x = decide(rule);", "# def decide(", "return decide(step)",
                                  "Decide = 1", "for (Kind k : decide)"])  # fmt: skip
def test_a_use_is_no_definition(line):
    assert not defines(line, "decide")


@pytest.mark.parametrize("line", ["    def decide(self", "int A::decide(int x) {", "class decide:",
                                  "constexpr Kind decide[] = {", "#define decide(X)"])  # fmt: skip
def test_a_definition_is_found(line):
    assert defines(line, "decide")
