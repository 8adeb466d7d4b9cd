# SPDX-License-Identifier: GPL-2.0-or-later
"""Options of a policy: declared beside the code that reads them, validated before it runs.

A policy class lists them in `options`; an instance finds the validated values in `self.values`:

    class Mine(MessagePolicy):
        options = (Option("rto", 3, "retransmission timeout, in SRTT", least=1, most=100),)

        def on_send_timer(...):
            rto_ns = self.values["rto"] * srtt_ns
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from softroce_lab import units
from softroce_lab.errors import UserError

Value: TypeAlias = bool | int | float | str
Unit: TypeAlias = Literal["", "time", "bytes"]

_PARSERS = {"time": units.parse_time_ns, "bytes": units.parse_bytes}
_FORMATS = {"time": units.format_duration, "bytes": units.format_bytes}
_TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


class OptionError(UserError):
    """A value that an option does not take; `option` is the key to point at."""

    def __init__(self, option: str, what: str, *, hint: str | None = None) -> None:
        super().__init__(what, hint=hint)
        self.option = option


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One option of a policy. The default's type is the option's type.

    With a unit the value is a text with a unit (`8 ms`, `64 KiB`), and the policy reads whole
    nanoseconds or bytes; the default and the bounds are such numbers, too.
    """

    name: str
    default: Value
    help: str
    unit: Unit = ""
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or not self.help:
            raise ValueError(f"an option needs a name and one line of help, not {self.name!r}")
        if self.unit and type(self.default) is not int:
            raise ValueError(f"option {self.name}: with a unit, the default is a whole number")
        self._check(self.default)

    def read(self, given: object) -> Value:
        """The value of what a user wrote; OptionError if it has another type or exceeds a bound."""
        value = self._parsed(given)
        self._check(value)
        return value

    def _parsed(self, given: object) -> Value:
        if self.unit and (isinstance(given, str) or given == 0):
            try:
                return _PARSERS[self.unit](str(given))
            except UserError as error:
                raise self._error(error.what, error.hint) from None
        if self.unit:
            raise self._error(f"{given!r} has no unit", f"for example {self.shown(self.default)!r}")
        wanted = type(self.default)
        if wanted is float and type(given) is int:
            return float(given)
        if wanted is str and type(given) is int:  # as `parity: 2`
            return str(given)
        if type(given) is not wanted:
            raise self._error(f"{given!r} is not {_TYPES[wanted]}", self.bounds())
        return given

    def _check(self, value: Value) -> None:
        if self.choices and value not in self.choices:
            near = difflib.get_close_matches(str(value), self.choices, n=1)
            hint = f"did you mean {near[0]!r}?" if near else self.bounds()
            raise self._error(f"unknown value {value!r}", hint)
        if isinstance(value, str):
            return
        # `not` of the wanted order: NaN is in no bounds.
        low, high = self.least, self.most
        if not ((low is None or value >= low) and (high is None or value <= high)):
            raise self._error(f"{self.shown(value)} is out of bounds", self.bounds())

    def _error(self, what: str, hint: str | None) -> OptionError:
        return OptionError(self.name, f"option {self.name!r}: {what}", hint=hint or None)

    def shown(self, value: float | str) -> str:
        """A value or a bound as a user writes it."""
        return _FORMATS[self.unit](value) if self.unit else str(value)  # type: ignore[arg-type]

    def bounds(self) -> str:
        """The values that it takes, in words."""
        if self.choices:
            return f"one of: {', '.join(self.choices)}"
        if self.least is None:
            return "" if self.most is None else f"at most {self.shown(self.most)}"
        if self.most is None:
            return f"at least {self.shown(self.least)}"
        return f"from {self.shown(self.least)} to {self.shown(self.most)}"


def validated(options: Sequence[Option], given: Mapping[str, Any]) -> dict[str, Value]:
    """A value for each option: what was given, else the default; OptionError for the first wrong.

    The error names the option and its bounds; a key that is no option is an error, too.
    """
    known = {option.name: option for option in options}
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
            raise OptionError(name, f"unknown option {name!r}", hint=hint)
    return {
        name: option.read(given[name]) if name in given else option.default
        for name, option in known.items()
    }
