# SPDX-License-Identifier: GPL-2.0-or-later
"""Values of axes: ranges, as `{from: 64KiB, to: 16MiB, times: 4}`, quantities, and labels."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.faults.words import Filled
from softroce_lab.inputs.validation import KeyedError
from softroce_lab.inputs.yaml_source import Data, Decimal

MAX_VALUES = 10_000

_LONGEST_QUANTITY = 64
_QUANTITY = re.compile(r"([-+.\deE]*[.\d]) *(\D+)", re.ASCII)
_KINDS: tuple[tuple[str, Callable[[str], int | Fraction]], ...] = (
    ("B", units.parse_bytes),
    ("ns", units.parse_time_ns),
    ("bit/s", units.parse_rate_bps),
    ("", units.parse_percent),
)
KINDS = tuple(kind for kind, _ in _KINDS)
_LARGER = {
    unit: scale[place:]
    for scale in (
        ("KiB", "MiB", "GiB", "TiB"),
        ("kB", "MB", "GB", "TB"),
        ("ns", "us", "ms", "s"),
        ("kbit", "Mbit", "Gbit", "Tbit"),
    )
    for place, unit in enumerate(scale, 1)
}


class Quantity(NamedTuple):
    """A value in the base unit of its kind."""

    value: Fraction
    kind: str  # its base unit: B, ns, bit/s; "" for shares and numbers without a unit
    unit: str  # as it is written; "" for a number


def quantity(data: object) -> Quantity | None:
    """What a number, or a text with a unit, amounts to; None if it is neither."""
    if isinstance(data, int) and not isinstance(data, bool):
        return Quantity(Fraction(data), "", "")
    if isinstance(data, float):  # by its shortest notation: 0.1 is a tenth, and 1e-999999999 is 0
        return Quantity(Fraction(float.__repr__(data)), "", "") if math.isfinite(data) else None
    if not isinstance(data, str) or len(data) > _LONGEST_QUANTITY:
        return None
    match = _QUANTITY.fullmatch(data.strip())
    if match is None:
        return None
    for kind, parse in _KINDS:
        try:
            return Quantity(Fraction(parse(match[0])), kind, match[2].strip())
        except UserError:
            pass
    return None


def label(value: Data) -> str:
    """A value as tables and `--only` have it."""
    if isinstance(value, dict | list):
        return json.dumps(value, default=str)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value)


def _end(value: object) -> object:
    if quantity(value) is None:
        raise UserError("expected a number, or a quantity with its unit", hint="such as 64KiB")
    return value


def _factor(value: object) -> object:
    if isinstance(value, str) or quantity(value) is None:
        raise UserError("a factor is a number", hint="such as 4")
    return value


End = Annotated[Any, BeforeValidator(_end)]
Factor = Annotated[Any, BeforeValidator(_factor)]


class RangeSpec(Filled):
    """Values from one to another, by steps of one size (`step`) or by a factor (`times`)."""

    from_: Annotated[End, Field(alias="from", description="The first value.")]
    to: End = Field(description="The last value, included if it is met.")
    step: End | None = Field(None, description="What is added from value to value.")
    times: Factor | None = Field(None, description="The factor from value to value.")

    @model_validator(mode="after")
    def _fits(self) -> RangeSpec:
        if (self.step is None) == (self.times is None):
            what = "a range takes either a 'step' or a factor, 'times'"
            raise KeyedError("from", what, "{from: 1us, to: 1ms, times: 10}")
        first = _of(self.from_)
        for key, value in (("to", self.to), ("step", self.step)):
            if value is not None and (_of(value).kind, not _of(value).unit) != (
                first.kind, not first.unit,
            ):  # fmt: skip
                raise KeyedError(key, f"{value} and {self.from_} are not of one kind")
        if self.times is not None and not (self.times > 1 and first.value > 0):
            raise KeyedError("times", "a factor is above 1, and the first value above 0")
        if self.step is not None and _of(self.step).value <= 0:
            raise KeyedError("step", "a step is above 0")
        if _of(self.to).value < first.value:
            raise KeyedError("to", f"{self.to} is below {self.from_}")
        return self

    def values(self) -> list[Data]:
        """All of them, in the unit of the first or a larger one.

        UserError for too many, or endless decimals.
        """
        first, last = _of(self.from_), _of(self.to).value
        found: list[Data] = []
        for value in self._amounts(first.value, last):
            if len(found) == MAX_VALUES:
                raise UserError(f"more than {MAX_VALUES} values", hint="a larger step")
            found.append(_written(value, first.unit))
        return found

    def _amounts(self, value: Fraction, last: Fraction) -> Iterator[Fraction]:
        while value <= last:
            yield value
            if self.times is not None:
                value *= _of(self.times).value
            else:
                value += _of(self.step).value


def _of(data: object) -> Quantity:
    found = quantity(data)
    assert found is not None, "validated"  # noqa: S101
    return found


def _written(value: Fraction, unit: str) -> Data:
    """Exactly, in this unit, or in a larger one where it is a whole number of that."""
    for larger in _LARGER.get(unit, ()):
        if value and value % _of(f"1{larger}").value == 0:
            unit = larger
    number = value / _of(f"1{unit}").value if unit else value
    whole, denominator = number.numerator, number.denominator
    if denominator == 1:
        return f"{whole}{unit}" if unit else whole
    text = f"{float(number):.12g}"
    if "e" in text or Fraction(text) != number:
        amount = f"{number} {unit}".rstrip()
        raise UserError(f"{amount} is no decimal number", hint="give the values in a list")
    return f"{text}{unit}" if unit else Decimal(text)
