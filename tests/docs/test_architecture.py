# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/architecture.md leads to code that is there: its table and its walks."""

import re

import pytest

from softroce_lab.paths import PROJECT_ROOT

PAGE = (PROJECT_ROOT / "docs/architecture.md").read_text()
STEP = re.compile(r"^\| \d+ \| .* \| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)
PLACE = re.compile(
    r"`((?:softroce_lab|native|xdp|tests|fabric|cli|plan|telemetry|experiment|check|engine)/[\w/.]+)`"
)
ROOTS = ("", "softroce_lab/", "native/")
TABLE = PAGE.partition("## Where do I change ...?")[2].partition("\n## ")[0]
ROWS = [line.strip("| ").split(" | ") for line in TABLE.splitlines() if line.startswith("| ")][1:]
NAMED = re.compile(r"((?:`\w+`(?:, | and )?)+) in `([\w/.]+)`")


def defines(text, name):
    """Whether a file defines a function, or in C++ a method, of this name."""
    name = re.escape(name)
    return re.search(rf"^\s*def {name}\(|^(?!return)[\w:<>*& ]*\b{name}\(", text, re.M)


def declares(text, name):
    """Whether a file defines a type, a table or a target's sources of this name."""
    name = re.escape(name)
    python = rf"class {name}\b|{name}(?:: [^=\n]+)? = "
    native = rf"(?:class|struct|enum|enum class) {name}\b|constexpr [\w:]+ {name}\b|set\({name}$"
    return re.search(rf"^(?:{python}|{native})", text, re.M)


def places_of_the_table():
    """(file, name) of every row: the second hop, and what else changes."""
    for row in ROWS:
        for name in re.findall(r"`(\w+)`", row[2]):
            yield row[1].strip("`"), name
        for names, file in NAMED.findall(" | ".join(row[3:])):
            for name in re.findall(r"`(\w+)`", names):
                yield file, name


def test_both_walks_have_their_steps():
    assert len(STEP.findall(PAGE)) >= 20


@pytest.mark.parametrize(("file", "function"), STEP.findall(PAGE))
def test_a_step_names_a_function_of_its_file(file, function):
    assert defines((PROJECT_ROOT / file).read_text(), function)


def test_the_table_answers_each_question_in_two_hops():
    assert len(ROWS) >= 20
    for row in ROWS:
        assert re.fullmatch(r"`[\w/.]+`", row[1]), row
        assert re.fullmatch(r"`\w+`(, `\w+`)*", row[2]), row


@pytest.mark.parametrize(("file", "name"), sorted(set(places_of_the_table())))
def test_the_table_names_what_its_file_defines(file, name):
    text = (PROJECT_ROOT / file).read_text()
    assert defines(text, name) or declares(text, name)


@pytest.mark.parametrize("place", sorted(set(PLACE.findall(PAGE))))
def test_a_place_exists(place):
    assert any((PROJECT_ROOT / root / place).exists() for root in ROOTS)


@pytest.mark.parametrize("line", ["x = decide(rule);", "# def decide(", "return decide(step)"])
def test_a_use_is_no_definition(line):
    assert not defines(line, "decide")


@pytest.mark.parametrize("line", ["def decide(", "    def decide(self", "int A::decide(int x) {"])
def test_a_definition_is_found(line):
    assert defines(line, "decide")


@pytest.mark.parametrize(
    "line",
    [
        "class Table:",
        "Table: dict[str, int] = {",
        "struct Table {",
        "enum class Table : int {",
        "constexpr Kind Table[] = {",
        "set(Table",
    ],
)
def test_a_declaration_is_found(line):
    assert declares(line, "Table")


@pytest.mark.parametrize("line", ["Tables = 1", "x = Table", "  Table = 1", "for (Kind k : Table)"])
def test_another_name_is_no_declaration(line):
    assert not declares(line, "Table")
