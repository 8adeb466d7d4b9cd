# SPDX-License-Identifier: GPL-2.0-or-later
"""pydantic's complaints in the words of the file."""

from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import BeforeValidator, Field

from softroce_lab.errors import UserError
from softroce_lab.inputs.validation import Model, did_you_mean, listed, validate
from softroce_lab.inputs.yaml_source import Source, parse


class Inner(Model):
    not_yet: ClassVar = {"later": "today there is now"}

    word: Literal["one", "two"] = "one"


class Outer(Model):
    text: str = ""
    flag: bool = False
    number: Annotated[int, Field(ge=1, le=9)] = 1
    pair: Annotated[list[int], Field(min_length=2, max_length=2)] = Field(default=[1, 2])
    inner: Inner = Inner()
    table: dict[str, Inner] = Field(default={})
    ports: list[Annotated[int, Field(le=9)]] = Field(default=[])
    hexadecimal: Annotated[int, BeforeValidator(lambda text: int(text, 16))] = 0


def refusal(text: str) -> str:
    with pytest.raises(UserError) as caught:
        validate(Outer, parse(text, "x.yaml"))
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("text: 5", "x.yaml:1:7: expected text, found 5"),
        ("flag: yes", "x.yaml:1:7: expected true or false, found 'yes'"),
        ("number: five", "x.yaml:1:9: expected a whole number, found 'five'"),
        ("number: true", "x.yaml:1:9: expected a whole number, found true or false"),
        ("number: 0", "x.yaml:1:9: number 0 is below 1"),
        ("number: 10", "x.yaml:1:9: number 10 is above 9"),
        ("ports: [1, 10]", "x.yaml:1:12: ports 10 is above 9"),
        ("hexadecimal: x", "x.yaml:1:14: invalid literal for int() with base 16: 'x'"),
        ("pair: [1]", "x.yaml:1:7: expected at least 2 entries, found 1"),
        ("pair: [1, 2, 3]", "x.yaml:1:7: expected at most 2 entries, found 3"),
        ("pair: {a: 1}", "x.yaml:1:7: expected a list, found a mapping"),
        ("inner: []", "x.yaml:1:8: expected keys and values, found a list"),
        ("inner: {word: three}", "x.yaml:1:15: expected 'one' or 'two', found 'three'"),
        ("table: text", "x.yaml:1:8: expected keys and values, found 'text'"),
        ("table: {a: {word: 1}}", "x.yaml:1:19: expected 'one' or 'two', found 1"),
        ("inner:\n  wurd: one", "x.yaml:2:3: unknown key 'wurd'\n  hint: did you mean 'word'?"),
        ("table: {a: {xyz: 1}}", "x.yaml:1:13: unknown key 'xyz'\n  hint: known: word, later"),
        (
            "inner: {later: 1}",
            "x.yaml:1:9: 'later' is not supported yet\n  hint: today there is now",
        ),
    ],
)
def test_words(text: str, error: str) -> None:
    assert refusal(text) == error


def test_the_first_mistake_in_the_file_comes_first() -> None:
    assert refusal("pair: 1\nnumber: 0\ntext: 1").startswith("x.yaml:1:7: expected a list")
    assert refusal("number: 0\npair: 1\ntext: 1").startswith("x.yaml:1:9: number 0")


def test_values_that_came_from_no_file_are_named_instead() -> None:
    with pytest.raises(UserError, match=r"^inner\.word: expected 'one' or 'two', found 3$"):
        validate(Outer, Source(None, {"inner": {"word": 3}}, {}, {}))


def test_hints() -> None:
    assert did_you_mean("leafspine", ["leaf-spine", "other"]) == "did you mean 'leaf-spine'?"
    assert did_you_mean("x", ["one", "two"]) == "known: one, two"
    assert listed(["a", "b", "c"], most=2) == "a, b, ..."
