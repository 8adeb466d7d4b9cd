# SPDX-License-Identifier: GPL-2.0-or-later
"""The notation of faults: quantities, sets of numbers, and models that are written in words too.

`delay 10ms 2ms distribution normal` is a map in fewer characters: values that stand in order,
then keys with their values, and flags.
"""

from __future__ import annotations

import collections
import difflib
import itertools
import re
from fractions import Fraction
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import GetJsonSchemaHandler, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import CoreSchema

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.inputs.validation import KeyedError, Model, did_you_mean

NUMBER_MAX = 2**32 - 1
MAX_NUMBERS = 4096  # that one entry may name
MAX_DELAY_NS = 3600 * 10**9
MAX_TIME_NS = 10**18  # 31 years
MAX_RATE_BPS = 10**13  # of congestion control (native/engine/congestion)

_SPACED_UNIT = re.compile(r"(?<=[\d.]) +(?=(?:%|[num]?s|[kKmMgGtT]?i?(?:B|bit(?:/s)?|bps))(?: |$))")
_BPS = re.compile(r"([kKmMgGtT]?i?)(bps)$", re.ASCII)
_HEX = "0[xX][0-9a-fA-F]{1,8}"
_RANGE = re.compile(rf"({_HEX}|\d{{1,20}})(?:-({_HEX}|\d{{1,20}}))?", re.ASCII)
_WHOLE = re.compile(rf"{_HEX}|[+-]?\d{{1,20}}", re.ASCII)


# --- Words -----------------------------------------------------------------------------------


def tokens(text: str) -> list[str]:
    """Split words; a unit that stands apart from its number is put back to it."""
    return _SPACED_UNIT.sub("", " ".join(text.split())).split()


class Filled(Model):
    """A model whose keys have values: `loss:` with nothing behind it is a slip, not a default."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_empty(cls, data: object) -> object:
        for key, value in data.items() if isinstance(data, dict) else ():
            if value is None:
                raise KeyedError(key, f"{key!r} has no value")
        return data

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core_schema))
        for name, value in schema.get("properties", {}).items():
            schema["properties"][name] = _without_null(value)
        return schema


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """What a key takes if it stands there."""
    choice = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key not in {"anyOf", "default"}}
    if not choice:
        return schema
    return {**rest, **(choice[0] if len(choice) == 1 else {"anyOf": choice})}


class Compact(Filled):
    """A model that may be written in words."""

    positional: ClassVar[tuple[str, ...]] = ()  # keys whose values stand first, without the key
    flags: ClassVar[tuple[str, ...]] = ()  # keys that mean true, also when they stand alone
    sized: ClassVar[tuple[str, ...]] = ()  # flags that may have a quantity after them

    @model_validator(mode="before")
    @classmethod
    def _from_words(cls, data: object) -> object:
        if isinstance(data, bool) or not isinstance(data, str | int | float):
            return data
        return cls.read_words(tokens(str(data)))

    @classmethod
    def read_words(cls, words: list[str]) -> dict[str, Any]:
        """Words -> the map that they stand for."""
        found: dict[str, Any] = {}
        bare = [
            word
            for before, word in itertools.pairwise(["", *words])
            if not (word == "true" and before in cls.flags)
        ]
        rest, places, keys = collections.deque(bare), iter(cls.positional), cls.written_keys()
        while rest:
            word = rest.popleft()
            key: str | None = word
            value: str | bool | None = word
            if word in keys:
                places = iter(())  # what stands in order stands first
                is_sized = word in cls.sized and bool(rest) and rest[0][0].isdigit()
                if word in cls.flags and not is_sized:
                    value = True
                else:
                    value = rest.popleft() if rest else None
            else:
                is_typo = not word[0].isdigit() and difflib.get_close_matches(word, keys, n=1)
                key = None if is_typo else next(places, None)
            if key is None:
                raise UserError(f"unexpected {word!r}", hint=did_you_mean(word, keys))
            if value is None:
                raise UserError(f"{word!r} has no value after it")
            if key in found:
                raise UserError(f"{key!r} stands twice")
            found[key] = value
        return found

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        keyed = super().__get_pydantic_json_schema__(core_schema, handler)
        return {"anyOf": [{"type": "string"}, keyed]}


# --- Quantities ------------------------------------------------------------------------------


def _text(value: object, what: str, example: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UserError(f"expected a {what}", hint=f"such as {example}")
    return str(value)


def _parse_probability(value: object) -> Fraction:
    return units.parse_percent(_text(value, "percentage", "1%"))


def _parse_time(value: object) -> int:
    time_ns = units.parse_time_ns(_text(value, "time", "10ms"))
    if time_ns > MAX_TIME_NS:
        raise UserError(f"time {value!r} is longer than {MAX_TIME_NS // 10**9} s")
    return time_ns


def _parse_delay(value: object) -> int:
    delay_ns = _parse_time(value)
    if delay_ns > MAX_DELAY_NS:
        raise UserError(f"delay {value!r} is longer than {MAX_DELAY_NS // 10**9} s")
    return delay_ns


def _parse_length(value: object) -> int:
    length_ns = _parse_time(value)
    if length_ns == 0:
        raise UserError(f"time {value!r} is nothing at all", hint="leave it out, or give a time")
    return length_ns


def _parse_rate(value: object) -> int:
    text = _text(value, "rate", "200Mbit")
    if bps := _BPS.search(text.rstrip()):
        what = f"rate {text!r} has an unknown unit {bps[0]!r}"
        bits = f"{bps[1].replace('K', 'k')}bit"
        raise UserError(what, hint=f"bps is bytes to tc and bits to everyone else: use {bits}")
    rate_bps = units.parse_rate_bps(text)
    if rate_bps > MAX_RATE_BPS:
        most = units.format_rate(MAX_RATE_BPS)
        raise UserError(f"rate {value!r} is too high", hint=f"at most {most}")
    return rate_bps


class Depth(NamedTuple):
    """How much waits in a queue, in packets or in bytes."""

    packets: int | None
    size_bytes: int | None


def _parse_depth(value: object) -> Depth:
    text = _text(value, "number of packets or size", "100 or 64KiB").strip()
    if re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        depth = Depth(_whole(text, "number of packets", 1, NUMBER_MAX), None)
    else:
        depth = Depth(None, units.parse_bytes(text))
    if depth.size_bytes == 0:
        raise UserError(f"size {text!r} is nothing at all", hint="such as 64KiB")
    return depth


def _parse_share(value: object) -> Fraction:
    share = _parse_probability(value)
    if share == 0:
        raise UserError(f"share {value!r} lets trimmed frames wait for ever", hint="such as 50%")
    return share


def _parse_trim(value: object) -> bool | Depth:
    return value if isinstance(value, bool) else _parse_depth(value)


# --- Lists -------------------------------------------------------------------------------------


def parts_of(value: object) -> list[object]:
    """The parts of a list, or of text with commas; anything else is its only part."""
    found: list[object] = []
    for part in value if isinstance(value, list) else [value]:
        found += part.split(",") if isinstance(part, str) else [part]
    return found


# --- Numbers ---------------------------------------------------------------------------------


def _whole(value: object, what: str, low: int, high: int) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not _WHOLE.fullmatch(text):
        raise UserError(f"{what} {str(value)!r} is not a whole number")
    number = int(text, 16 if text[1:2] in ("x", "X") else 10)
    if not low <= number <= high:
        raise UserError(f"{what} {number} can match nothing", hint=f"{low} to {high}")
    return number


def number(what: str, low: int, high: int) -> PlainValidator:
    """A whole number, or the digits of one."""

    def parse(value: object) -> int:
        return _whole(value, what, low, high)

    return PlainValidator(parse)


def numbers(what: str, low: int, high: int) -> PlainValidator:
    """A set of whole numbers: `5`, `0-7`, `1,3,8-15`, or a list of such; at most 4096 of them."""

    def one(part: object) -> range:
        text = part.strip() if isinstance(part, str) else part
        match = _RANGE.fullmatch(text) if isinstance(text, str) else None
        if match is None or match[2] is None:
            first = last = _whole(text, what, low, high)
        else:
            first, last = (_whole(end, what, low, high) for end in match.groups())
        if last < first:
            raise UserError(f"{what} {part!r} runs backwards")
        return range(first, last + 1)

    def parse(value: object) -> tuple[int, ...]:
        ranges = [one(part) for part in parts_of(value)]
        if not ranges:
            raise UserError(f"{what}: an empty list can match nothing")
        if sum(map(len, ranges)) > MAX_NUMBERS:
            raise UserError(f"{what}: more than {MAX_NUMBERS} numbers", hint="use a wider rule")
        return tuple(sorted({n for span in ranges for n in span}))

    return PlainValidator(parse)


# --- The schema for editors -----------------------------------------------------------------


def _unit_schema(unit: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": rf"^[0-9.]+([eE][-+]?[0-9]+)? *{unit}$"})


_NUMBER = {"type": "integer", "minimum": 0}
_SPAN = {"type": "string", "pattern": r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$"}
NUMBERS_SCHEMA = WithJsonSchema(
    {"anyOf": [_NUMBER, _SPAN, {"type": "array", "items": {"anyOf": [_NUMBER, _SPAN]}}]}
)
NUMBER_SCHEMA = WithJsonSchema(_NUMBER)

_TIME_SCHEMA = _unit_schema("(ns|us|ms|s)")
Probability = Annotated[Fraction, PlainValidator(_parse_probability), _unit_schema("%")]
Time = Annotated[int, PlainValidator(_parse_time), _TIME_SCHEMA]
Length = Annotated[int, PlainValidator(_parse_length), _TIME_SCHEMA]
DelayTime = Annotated[int, PlainValidator(_parse_delay), _TIME_SCHEMA]
Rate = Annotated[int, PlainValidator(_parse_rate), _unit_schema("[kKMGTmgt]?i?bit(/s)?")]
_DEPTHS = [
    {"type": "integer", "minimum": 1},
    {"type": "string", "pattern": "^[0-9.]+ *[kKMGT]?i?B$"},
]
DepthField = Annotated[Depth, PlainValidator(_parse_depth), WithJsonSchema({"anyOf": _DEPTHS})]
TrimShare = Annotated[Fraction, PlainValidator(_parse_share), _unit_schema("%")]
TrimField = Annotated[
    bool | Depth,
    PlainValidator(_parse_trim),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, *_DEPTHS]}),
]
