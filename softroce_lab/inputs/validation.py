# SPDX-License-Identifier: GPL-2.0-or-later
"""Raw models: pydantic, strict, no unknown keys, and every complaint with file, line and column."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails

from softroce_lab.errors import UserError
from softroce_lab.inputs.yaml_source import Place, Source, describe


class KeyedError(UserError):
    """A complaint about one key of a mapping: that it is unknown, or does not go with another."""

    def __init__(self, key: str, what: str, hint: str | None = None) -> None:
        super().__init__(what, hint=hint)
        self.key = key


class Model(BaseModel):
    """Base of all raw models."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    not_yet: ClassVar[Mapping[str, str]] = {}  # words that are planned: key to what there is now
    elsewhere: ClassVar[Mapping[str, str]] = {}  # words that belong to another place: key to where

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: object) -> object:
        known = cls.written_keys()
        for key in data if isinstance(data, dict) else ():
            if key in cls.not_yet:
                raise KeyedError(key, f"{key!r} is not supported yet", cls.not_yet[key])
            if key in cls.elsewhere:
                raise KeyedError(key, f"{key!r} does not belong here", cls.elsewhere[key])
            if key not in known:
                near = did_you_mean(key, [*known, *cls.not_yet])
                raise KeyedError(key, f"unknown key {key!r}", near)
        return data

    @classmethod
    def written_keys(cls) -> list[str]:
        """The keys that it has, as they are written."""
        return [field.alias or name for name, field in cls.model_fields.items()]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Suggest the nearest known word, or list them."""
    words = list(known)
    near = difflib.get_close_matches(word, words, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {listed(words)}"


def listed(words: Sequence[str], most: int = 12) -> str:
    return ", ".join(words[:most]) + (", ..." if len(words) > most else "")


M = TypeVar("M", bound=Model)


def validate(model: type[M], source: Source) -> M:
    """Make a model of a file's contents; UserError for the first mistake in it."""
    try:
        return model.model_validate(source.data)
    except ValidationError as error:
        first = min(error.errors(include_url=False), key=lambda item: _order(source, item))
        raise _located(source, first) from None


def editor_schema(model: type[Model], title: str) -> dict[str, Any]:
    """Describe a file as JSON Schema, for editors that complete and check YAML."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {**dialect, **model.model_json_schema(), "title": title}


def _order(source: Source, error: ErrorDetails) -> tuple[int, int]:
    return source.mark(error["loc"]) or (0, 0)


def _located(source: Source, error: ErrorDetails) -> UserError:
    place: Place = error["loc"]
    at_key = False
    what, hint = _words(error)
    cause = error.get("ctx", {}).get("error")
    if place[-1:] == ("[key]",):  # pydantic's mark of a complaint about a key
        place, at_key = place[:-1], True
    if isinstance(cause, KeyedError):
        place, at_key = (*place, cause.key), True
    if source.file is None and not isinstance(cause, UserError):
        what = f"{'.'.join(map(str, place))}: {what}"
    return source.error(place, what, hint=hint, at_key=at_key)


# pydantic's sentences speak of Python's types; these speak of the file.
_WORDS: dict[str, Callable[[ErrorDetails], str]] = {
    "missing": lambda e: f"key {e['loc'][-1]!r} is missing",
    "string_type": lambda e: f"expected text, found {_shown(e)}",
    "bool_type": lambda e: f"expected true or false, found {_shown(e)}",
    "int_type": lambda e: f"expected a whole number, found {_shown(e)}",
    "list_type": lambda e: f"expected a list, found {_shown(e)}",
    "dict_type": lambda e: f"expected keys and values, found {_shown(e)}",
    "model_type": lambda e: f"expected keys and values, found {_shown(e)}",
    "model_attributes_type": lambda e: f"expected keys and values, found {_shown(e)}",
    "literal_error": lambda e: f"expected {e['ctx']['expected']}, found {_shown(e)}",
    "greater_than_equal": lambda e: f"{_named(e)} is below {e['ctx']['ge']}",
    "less_than_equal": lambda e: f"{_named(e)} is above {e['ctx']['le']}",
    "multiple_of": lambda e: f"{_named(e)} is not a multiple of {e['ctx']['multiple_of']}",
    "too_short": lambda e: _count(e, "at least", e["ctx"]["min_length"]),
    "too_long": lambda e: _count(e, "at most", e["ctx"]["max_length"]),
    "union_tag_not_found": lambda e: f"key {e['ctx']['discriminator']} is missing",
    "union_tag_invalid": lambda e: (
        f"unknown {e['ctx']['discriminator'].strip(chr(39))} {e['ctx']['tag']!r}"
    ),
}


def _words(error: ErrorDetails) -> tuple[str, str | None]:
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, UserError):
        return cause.what, cause.hint
    words = _WORDS.get(error["type"])
    what = words(error) if words else str(cause or error["msg"])
    context = error.get("ctx", {})
    if error["type"] == "union_tag_invalid":  # tags are in quotes, which separate them
        return what, did_you_mean(str(context["tag"]), context["expected_tags"].split("'")[1::2])
    return what, None


def _shown(error: ErrorDetails) -> str:
    value = error["input"]
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        text = repr(value) if isinstance(value, str) else str(value)
        return text if len(text) <= 64 else text[:61] + "..."
    return describe(value)


def _named(error: ErrorDetails) -> str:
    key = next(part for part in reversed(error["loc"]) if isinstance(part, str))
    return f"{key} {_shown(error)}"


def _count(error: ErrorDetails, bound: str, count: int) -> str:
    entries = "entry" if count == 1 else "entries"
    return f"expected {bound} {count} {entries}, found {len(error['input'])}"
