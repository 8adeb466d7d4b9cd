# SPDX-License-Identifier: GPL-2.0-or-later
"""The notation of faults: words and maps, quantities, sets of numbers."""

from fractions import Fraction
from typing import Annotated, ClassVar

import pytest
from pydantic import Field

from softroce_lab.errors import UserError
from softroce_lab.faults.words import (
    Compact,
    Depth,
    DepthField,
    Length,
    Probability,
    Rate,
    Time,
    numbers,
)
from softroce_lab.inputs.validation import Model, validate
from softroce_lab.inputs.yaml_source import parse


class Thing(Compact):
    positional: ClassVar = ("size", "1-h")
    flags: ClassVar = ("fast",)

    size: Time
    share: Annotated[Probability | None, Field(alias="1-h")] = None
    colour: str | None = None
    fast: bool = False


class Top(Model):
    thing: Thing | None = None
    set_: Annotated[tuple[int, ...] | None, numbers("packet", 0, 9999), Field(alias="set")] = None
    depth: DepthField | None = None
    rate: Rate | None = None
    length: Length | None = None


def read(text: str) -> Top:
    return validate(Top, parse(text, "x.yaml"))


def refused(text: str) -> str:
    with pytest.raises(UserError) as caught:
        read(text)
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "thing: 10ms 1% fast colour red",
        "thing: 10 ms 1 % fast colour red",
        "thing: 10ms 1% colour red fast",
        "thing: size 10ms 1-h 1% colour red fast",
        "thing: {size: 10ms, 1-h: 1%, colour: red, fast: true}",
    ],
)
def test_words_and_maps_mean_the_same(text: str) -> None:
    thing = read(text).thing
    assert thing is not None
    assert (thing.size, thing.share, thing.colour, thing.fast) == (
        10**7,
        Fraction(1, 100),
        "red",
        True,
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("thing: 10ms colour", "x.yaml:1:8: 'colour' has no value after it"),
        ("thing: 10ms fast fast", "x.yaml:1:8: 'fast' stands twice"),
        ("thing: 10ms color red", "x.yaml:1:8: unexpected 'color'\n  hint: did you mean 'colour'?"),
        ("thing: ''", "x.yaml:1:8: key 'size' is missing"),
        ("thing: 10", "x.yaml:1:8: time '10' has no unit"),
        ("thing: {size: [10ms]}", "x.yaml:1:15: expected a time"),
        ("thing: {size: 40000000000s}", "x.yaml:1:15: time '40000000000s' is longer than"),
        ("thing: {size: 1ms, colour: }", "x.yaml:1:20: 'colour' has no value"),
        ("thing: {size: 1ms, share: 1%}", "x.yaml:1:20: unknown key 'share'"),
        ("length: 0ms", "x.yaml:1:9: time '0ms' is nothing at all"),
        ("rate: 11Tbit", "x.yaml:1:7: rate '11Tbit' is too high\n  hint: at most 10 Tbit/s"),
        ("depth: 0", "x.yaml:1:8: number of packets 0 can match nothing"),
        ("depth: 0B", "x.yaml:1:8: size '0B' is nothing at all"),
        ("set: 10000", "x.yaml:1:6: packet 10000 can match nothing\n  hint: 0 to 9999"),
        ("set: 5-3", "x.yaml:1:6: packet '5-3' runs backwards"),
        ("set: []", "x.yaml:1:6: packet: an empty list can match nothing"),
        ("set: one", "x.yaml:1:6: packet 'one' is not a whole number"),
        ("set: 0-4096", "x.yaml:1:6: packet: more than 4096 numbers"),
    ],
)
def test_mistakes_are_pointed_at(text: str, error: str) -> None:
    assert refused(text).startswith(error)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", (5,)),
        ("0-3", (0, 1, 2, 3)),
        ("[1, 4-6, '2']", (1, 2, 4, 5, 6)),
        ("'7,1-2, 9'", (1, 2, 7, 9)),
        ("[3, 3]", (3,)),
    ],
)
def test_sets_of_numbers(text: str, expected: tuple[int, ...]) -> None:
    assert read(f"set: {text}").set_ == expected


def test_a_plain_number_is_packets_and_a_size_is_bytes() -> None:
    assert read("depth: 100").depth == Depth(100, None)
    assert read("depth: '100'").depth == Depth(100, None)
    assert read("depth: 64KiB").depth == Depth(None, 65536)
