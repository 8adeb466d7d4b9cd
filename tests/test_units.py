# SPDX-License-Identifier: GPL-2.0-or-later
"""Quantities: exact on the way in, readable on the way out, and never without a unit."""

import contextlib
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab import units
from softroce_lab.errors import UserError


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0 B", 0),
        ("1B", 1),
        ("2 kB", 2000),
        ("2 KiB", 2048),
        ("1.5KiB", 1536),
        ("128 MiB", 128 << 20),
        ("3 GB", 3 * 10**9),
        ("1e3 B", 1000),
        ("1. B", 1),
        (".5 KiB", 512),
    ],
)
def test_sizes(text: str, size_bytes: int) -> None:
    assert units.parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "time_ns"), [("7ns", 7), ("10 us", 10_000), ("1.5 ms", 1_500_000), ("2s", 2 * 10**9)]
)
def test_times(text: str, time_ns: int) -> None:
    assert units.parse_time_ns(text) == time_ns


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [
        ("9 bit", 9),
        ("1kbit", 1000),
        ("100Mbit", 10**8),
        ("100mbit", 10**8),
        ("25 Gbit/s", 25 * 10**9),
        ("1 Kibit/s", 1024),
        ("0.4Tbit", 4 * 10**11),
    ],
)
def test_rates(text: str, rate_bps: int) -> None:
    assert units.parse_rate_bps(text) == rate_bps


@pytest.mark.parametrize(
    ("text", "probability"),
    [
        ("0%", Fraction(0)),
        ("1%", Fraction(1, 100)),
        ("0.01 %", Fraction(1, 10_000)),
        ("1e-7%", Fraction(1, 10**9)),
        ("100%", Fraction(1)),
    ],
)
def test_percentages(text: str, probability: Fraction) -> None:
    assert units.parse_percent(text) == probability


@pytest.mark.parametrize(
    ("parse", "text", "what"),
    [
        (units.parse_bytes, "", "is not a size"),
        (units.parse_bytes, "five MiB", "is not a size"),
        (units.parse_bytes, "128", "has no unit"),
        (units.parse_bytes, "-1 B", "is negative"),
        (units.parse_bytes, "1 mb", "unknown unit 'mb'"),
        (units.parse_bytes, "1.5 B", "no whole number of B"),
        (units.parse_bytes, "9" * 100 + " B", "is not a size"),
        (units.parse_bytes, "1e999 B", "unknown unit '9 B'"),
        (units.parse_bytes, "\u0661 B", "is not a size"),
        (units.parse_time_ns, "10", "has no unit"),
        (units.parse_time_ns, "0.5 ns", "no whole number of ns"),
        (units.parse_rate_bps, "1 Gbps", "unknown unit 'Gbps'"),
        (units.parse_percent, "1", "has no unit"),
        (units.parse_percent, "150%", "is above 100%"),
        (units.parse_percent, "-1%", "is negative"),
        (units.parse_percent, "1 ppm", "unknown unit 'ppm'"),
        (units.parse_percent, "1e-30%", "too small"),
        (units.parse_percent, "nan%", "is not a percentage"),
    ],
)
def test_refused(parse: Callable[[str], object], text: str, what: str) -> None:
    with pytest.raises(UserError, match=what):
        parse(text)


@pytest.mark.parametrize(
    "parse", [units.parse_bytes, units.parse_time_ns, units.parse_rate_bps, units.parse_percent]
)
def test_nothing_is_nothing_in_any_unit(parse: Callable[[str], object]) -> None:
    assert parse("0") == parse(" 0.0 ") == 0
    with pytest.raises(UserError, match="unknown unit 'apples'"):
        parse("0 apples")


def test_an_unknown_unit_lists_the_known_ones() -> None:
    with pytest.raises(UserError) as caught:
        units.parse_time_ns("1 h")
    assert caught.value.hint == "use ns, us, ms, s"


def test_thresholds_are_exact() -> None:
    assert units.threshold(Fraction(0)) == 0
    assert units.threshold(Fraction(1, 2)) == 1 << 63
    assert units.threshold(Fraction(1, 100)) == 184467440737095516
    assert units.threshold(Fraction(1, 10**9)) == 18446744074
    assert units.threshold(Fraction(1)) == 2**64 - 1


@given(st.fractions(0, 1))
def test_a_threshold_is_the_probability_to_within_one_step(probability: Fraction) -> None:
    threshold = units.threshold(probability)
    assert 0 <= threshold <= units.THRESHOLD_MAX
    assert abs(Fraction(threshold, 2**64) - probability) <= Fraction(1, 2**64)


@given(st.text(max_size=70))
def test_any_text_is_a_quantity_or_a_user_error(text: str) -> None:
    for parse in (units.parse_bytes, units.parse_time_ns, units.parse_rate_bps):
        with contextlib.suppress(UserError):
            assert parse(text) >= 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.format_bytes(0), "0 B"),
        (units.format_bytes(1023), "1023 B"),
        (units.format_bytes((1 << 20) - 1), "1 MiB"),
        (units.format_bytes(128 << 20), "128 MiB"),
        (units.format_bytes(1536), "1.5 KiB"),
        (units.format_duration(0), "0 ns"),
        (units.format_duration(999.7), "1 us"),
        (units.format_duration(1_500_000), "1.5 ms"),
        (units.format_duration(12_345_678), "12.3 ms"),
        (units.format_duration(100_000), "100 us"),
        (units.format_duration(59.94e9), "59.9 s"),
        (units.format_duration(59.96e9), "1 min 0 s"),
        (units.format_duration(125e9), "2 min 5 s"),
        (units.format_rate(2_345_000_000), "2.35 Gbit/s"),
        (units.format_rate(0), "0 bit/s"),
    ],
)
def test_formatting(text: str, expected: str) -> None:
    assert text == expected


@given(st.integers(0, 2**60))
def test_a_formatted_size_is_within_half_a_percent(size_bytes: int) -> None:
    shown = units.format_bytes(size_bytes)
    number, unit = shown.split()
    assert abs(float(number) * units.parse_bytes(f"1 {unit}") - size_bytes) <= 0.005 * size_bytes
