# SPDX-License-Identifier: GPL-2.0-or-later
"""Quantities: text with a unit to an exact integer or fraction, and back for humans.

Sizes become bytes, times nanoseconds, rates bits per second, percentages an exact `Fraction`.
Only 0 may stand without a unit. Nothing is rounded on the way in: what is no whole number of the
base unit is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from softroce_lab.errors import UserError

_SIZES = {
    "B": 1,
    **{f"{p}B": 1000**n for n, p in enumerate("kMGT", 1)},
    **{f"{p}iB": 1024**n for n, p in enumerate("KMGT", 1)},
}
_DISTANCES_M = {"m": 1, "km": 1000}
_TIMES_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
# tc(8) writes them in lower case, data sheets with a capital; both are read.
_RATES_BPS = {
    "bit": 1,
    **{f"{p}bit": 1000**n for n, p in enumerate("kMGT", 1)},
    **{f"{p}ibit": 1024**n for n, p in enumerate("KMGT", 1)},
}
_RATE_WORDS = {
    spelling + suffix: bps
    for unit, bps in _RATES_BPS.items()
    for spelling in (unit, unit.lower())
    for suffix in ("", "/s")
}

# At most two digits of exponent: "1e999999999%" must not cost the machine its memory.
_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,2})?)\s*(.*?)\s*", re.ASCII)
_LONGEST_QUANTITY = 64

THRESHOLD_MAX = 2**64 - 1


def _split(text: str, what: str, example: str) -> tuple[Fraction, str]:
    """Part `text` into number and unit, "" for 0; UserError if either lacks, or for a minus."""
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST_QUANTITY else None
    if match is None:
        raise UserError(
            f"{text[:_LONGEST_QUANTITY]!r} is not a {what}", hint=f"for example {example}"
        )
    number, unit = Fraction(match[1]), match[2]
    if number < 0:
        raise UserError(f"{what} {text!r} is negative", hint=f"for example {example}")
    if number and not unit:
        raise UserError(f"{what} {text!r} has no unit", hint=f"for example {example}")
    return number, unit


def _whole(text: str, what: str, example: str, units: Mapping[str, int], offered: str) -> int:
    number, unit = _split(text, what, example)
    if not unit:
        return 0
    if unit not in units:
        raise UserError(f"{what} {text!r} has an unknown unit {unit!r}", hint=f"use {offered}")
    value = number * units[unit]
    if value.denominator != 1:
        raise UserError(f"{what} {text!r} is no whole number of {next(iter(units))}")
    return value.numerator


def parse_bytes(text: str) -> int:
    """`128 MiB`, `64KiB`, `2 kB` -> bytes. SI and IEC prefixes are distinguished."""
    return _whole(text, "size", "128 MiB", _SIZES, ", ".join(_SIZES))


def parse_time_ns(text: str) -> int:
    """`10us`, `1.5 ms`, `2s` -> nanoseconds."""
    return _whole(text, "time", "10 ms", _TIMES_NS, ", ".join(_TIMES_NS))


def parse_distance_m(text: str) -> int:
    """`3750km`, `75 km` -> metres."""
    return _whole(text, "distance", "3750 km", _DISTANCES_M, ", ".join(_DISTANCES_M))


def parse_rate_bps(text: str) -> int:
    """`100Mbit`, `25 Gbit/s`, tc's `100mbit` -> bits per second.

    `bps` is refused: it is bytes per second to tc and bits per second to everyone else.
    """
    return _whole(text, "rate", "100 Mbit", _RATE_WORDS, ", ".join(_RATES_BPS))


def parse_percent(text: str) -> Fraction:
    """`1%`, `0.01 %`, `1e-7%` -> the exact probability, from 0 to 1.

    A probability above zero that no 64-bit threshold can express is refused.
    """
    number, unit = _split(text, "percentage", "1%, which is a probability of 0.01")
    if unit not in ("%", ""):
        raise UserError(f"percentage {text!r} has an unknown unit {unit!r}", hint="use %")
    probability = number / 100
    if probability > 1:
        raise UserError(f"percentage {text!r} is above 100%")
    if probability > 0 and threshold(probability) == 0:
        raise UserError(f"percentage {text!r} is too small for a 64-bit threshold")
    return probability


def threshold(probability: Fraction) -> int:
    """Map a probability to 64 bits: the event happens when a 64-bit hash is below the result."""
    return min(round(probability * 2**64), THRESHOLD_MAX)


def _scaled(value: float, steps: tuple[tuple[str, float], ...]) -> str:
    """Three significant digits in the largest unit that leaves at least 1 before the point."""
    # 0.9995: what would round up to 1 of a larger unit is printed in that unit.
    unit, size = next((step for step in steps if abs(value) >= step[1] * 0.9995), steps[-1])
    scaled = value / size
    digits = 0 if abs(scaled) >= 99.95 else 1 if abs(scaled) >= 9.995 else 2
    text = f"{scaled:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"


_BYTE_STEPS = (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0))
_TIME_STEPS = (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))
_RATE_STEPS = (("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0))


def format_count(number: int, thing: str) -> str:
    """`1 link`, `2 links`, `3 switches`, `4 losses`."""
    plural = "es" if thing.endswith(("ch", "ss")) else "s"
    return f"{number:,} {thing}{'' if number == 1 else plural}"


def format_bytes(size_bytes: float) -> str:
    """`134217728` -> `128 MiB`."""
    return _scaled(size_bytes, _BYTE_STEPS)


def format_duration(time_ns: float) -> str:
    """nanoseconds: `1500000` -> `1.5 ms`; a minute and more as `2 min 5 s`."""
    if time_ns < 59.95e9:
        return _scaled(time_ns, _TIME_STEPS)
    minutes, seconds = divmod(round(time_ns / 1e9), 60)
    return f"{minutes} min {seconds} s"


def format_rate(rate_bps: float) -> str:
    """`2345000000` -> `2.35 Gbit/s`."""
    return _scaled(rate_bps, _RATE_STEPS)
