# SPDX-License-Identifier: GPL-2.0-or-later
"""Options of policies: types, units, bounds, choices, and errors that name them."""

import math

import pytest

from softroce_lab.errors import UserError
from softroce_lab.transports.options import Option, OptionError, validated

OPTIONS = (
    Option("rto", 3, "retransmission timeout, in SRTT", least=1, most=100),
    Option("weight", 0.5, "of a new sample", least=0, most=1),
    Option("window", 8_000_000, "reordering window", unit="time", least=0, most=1_000_000_000),
    Option("chunk", 65536, "bytes of a chunk", unit="bytes", least=1024),
    Option("rule", "linear", "how the interval grows", choices=("fixed", "linear")),
    Option("eager", False, "retransmit before the timer"),
)


def test_given_values_are_read_by_type_and_unit():
    given = {"rto": 5, "weight": 1, "window": "2 ms", "chunk": "4 KiB", "rule": "fixed"}
    values = validated(OPTIONS, {**given, "eager": True})
    assert values == {
        "rto": 5, "weight": 1.0, "window": 2_000_000, "chunk": 4096, "rule": "fixed", "eager": True,
    }  # fmt: skip
    assert type(values["weight"]) is float
    assert validated(OPTIONS, {"window": 0})["window"] == 0


@pytest.mark.parametrize(
    ("name", "given", "what", "hint"),
    [
        ("rto", 0, "0 is out of bounds", "from 1 to 100"),
        ("rto", 101, "101 is out of bounds", "from 1 to 100"),
        ("rto", 2.5, "2.5 is not a whole number", "from 1 to 100"),
        ("rto", True, "True is not a whole number", "from 1 to 100"),
        ("rto", None, "None is not a whole number", "from 1 to 100"),
        ("weight", math.nan, "nan is out of bounds", "from 0 to 1"),
        ("weight", "much", "'much' is not a number", "from 0 to 1"),
        ("window", 5, "5 has no unit", "for example '8 ms'"),
        ("window", "2 s", "2 s is out of bounds", "from 0 ns to 1 s"),
        ("window", "2 miles", "unknown unit 'miles'", "use ns, us, ms, s"),
        ("chunk", "1 B", "1 B is out of bounds", "at least 1 KiB"),
        ("rule", "liner", "unknown value 'liner'", "did you mean 'linear'?"),
        ("rule", 7, "unknown value '7'", "one of: fixed, linear"),
        ("eager", 1, "1 is not true or false", None),
    ],
)
def test_an_error_names_the_option_and_its_bounds(name, given, what, hint):
    with pytest.raises(UserError) as caught:
        validated(OPTIONS, {name: given})
    assert isinstance(caught.value, OptionError)
    assert caught.value.option == name
    assert f"option {name!r}: " in caught.value.what
    assert what in caught.value.what
    assert caught.value.hint == hint


def test_an_unknown_option_suggests_a_known_one():
    with pytest.raises(OptionError, match="unknown option 'roto'") as caught:
        validated(OPTIONS, {"roto": 1})
    assert caught.value.option == "roto"
    assert caught.value.hint == "did you mean 'rto'?"
    with pytest.raises(OptionError) as caught:
        validated((), {"x": 1})
    assert caught.value.hint == "known: none"


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "two words", "default": 1, "help": "x"},
        {"name": "x", "default": 1, "help": ""},
        {"name": "x", "default": 5, "help": "x", "most": 4},
        {"name": "x", "default": "b", "help": "x", "choices": ("a",)},
        {"name": "x", "default": 0.5, "help": "x", "unit": "time"},
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(fields):
    with pytest.raises(ValueError):  # noqa: PT011 - OptionError is one
        Option(**fields)
