# SPDX-License-Identifier: GPL-2.0-or-later
"""YAML that remembers where everything stood, so that every complaint can point at it.

ruamel.yaml parses and resolves (YAML 1.2: `yes` and `1:30` are text); what it composes is turned
into plain dicts, lists and scalars here, with the line and column of every key and value beside
them. Input may be hostile: its size, depth and what its aliases expand to are bounded.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StreamMark, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from softroce_lab.errors import UserError
from softroce_lab.inputs import text_file

MAX_FILE_BYTES = 1 << 20
MAX_VALUES = 200_000  # after the expansion of aliases: a topology of 4000 ports has 10,000
MAX_DEPTH = 32
MAX_DIGITS = 64  # of a number; a longer one stays text, which no number's field takes
MAX_COMPLAINT = (
    300  # characters: a complaint quotes the file, which may hold a megabyte in one word
)


class Decimal(float):
    """A number with a point, and how it was written: of a version, 6.1 and 6.10 are two."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Decimal:
        """Of its text; ValueError if that is no number."""
        made = super().__new__(cls, text.replace("_", ""))
        made.text = text
        return made

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[type[Decimal], tuple[str]]:  # a copy is made of its text, too
        return Decimal, (self.text,)


Data: TypeAlias = "dict[str, Data] | list[Data] | str | int | float | bool | None"
Place: TypeAlias = tuple[str | int, ...]  # keys and indexes from the top, as pydantic's `loc`


class Mark(NamedTuple):
    line: int
    column: int


class Origin(enum.Enum):
    """Who vouches for a file, and so what it may make the lab execute, read and write."""

    USER = enum.auto()  # the user named the file: everything
    TRUSTED_RUN = enum.auto()  # a run directory that the user trusts: it writes no file
    RUN = enum.auto()  # any run directory: it executes nothing, and reads no file outside


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    file: str | None  # None: not from a file, errors then name no place
    data: dict[str, Data]
    keys: Mapping[Place, Mark]
    values: Mapping[Place, Mark]
    origin: Origin = Origin.USER

    def error(
        self, place: Place, what: str, *, hint: str | None = None, at_key: bool = False
    ) -> UserError:
        """Make a UserError that points at a value, or at its key.

        Parts of `place` that the file does not have, such as a default, are passed over.
        """
        if len(what) > MAX_COMPLAINT:
            what = what[: MAX_COMPLAINT - 3] + "..."
        known = self._known(place)
        marks = self.keys if at_key and known[-1:] == place[-1:] else self.values
        mark = marks.get(known)
        if mark is None:
            return UserError(what, hint=hint, file=self.file)
        return UserError(what, hint=hint, file=self.file, line=mark.line, column=mark.column)

    def mark(self, place: Place) -> Mark | None:
        """Where the value at `place` begins, or the nearest value above it that the file has."""
        return self.values.get(self._known(place))

    def below(self, key: str) -> Source:
        """What the file has at `key`, as if it were a file of its own; there are keys and values.

        Places in it are those of the whole file.
        """
        data = self.data[key]
        if not isinstance(data, dict):
            raise self.error((key,), f"expected keys and values, found {describe(data)}")
        keys, values = (
            {place[1:]: mark for place, mark in marks.items() if place[0:1] == (key,)}
            for marks in (self.keys, self.values)
        )
        keys.pop((), None)
        return Source(self.file, data, keys, values, self.origin)

    def _known(self, place: Place) -> Place:
        known: Place = ()
        for part, following in itertools.zip_longest(place, place[1:]):
            below, beside = (*known, part), (*known, following)
            is_tag = beside in self.values and (*below, following) not in self.values
            if below in self.values and not is_tag:  # a tag of a union may be a key's name, too
                known = below
        return known


NOWHERE = Source(None, {}, {}, {})  # for models that were built, not read


def read(path: Path, origin: Origin = Origin.USER) -> Source:
    source = parse(text_file.read(path, MAX_FILE_BYTES), str(path))
    return dataclasses.replace(source, origin=origin)


def parse(text: str, file: str | None = None) -> Source:
    """Parse YAML whose top is a mapping; UserError with the place of whatever is wrong."""
    return _Builder(file).build(_compose(text, file))


def _compose(text: str, file: str | None) -> Node | None:
    yaml = YAML(typ="safe", pure=True)
    yaml.composer.warn_double_anchors = False  # an anchor may be set anew: YAML 1.2, section 7.1
    try:
        return yaml.compose(text)  # type: ignore[no-any-return]
    except RecursionError:
        raise UserError(f"is nested more than {MAX_DEPTH} deep", file=file) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position)
        column = error.position - text.rfind("\n", 0, error.position)
        what = f"character {text[error.position]!r} is not allowed in YAML"
        raise UserError(what, file=file, line=line + 1, column=column) from None
    except MarkedYAMLError as error:
        raise _broken(error, file) from None
    except YAMLError as error:
        raise UserError(f"broken YAML: {error}", file=file) from None


_QUOTE = "put quotes around a value that begins with one of * & ! % @ `"
_HINTS = {
    "\\t": "YAML is indented with spaces, not with tabs",
    "cannot start any token": _QUOTE,
    "undefined alias": _QUOTE,
    "mapping values are not allowed": "check the indentation; a value with ': ' in it needs quotes",
    "<block end>": "check the indentation",
    "<document start>": "check the indentation: all keys of the file begin in the same column",
    "could not find expected ':'": "a key is followed by ': '",
    "another document": "one file holds one document",
}


def _broken(error: MarkedYAMLError, file: str | None) -> UserError:
    # The parser names some of what it found as a tuple of one.
    problem = re.sub(r"\('(.*)',\)", r"'\1'", str(error.problem))
    what = f"broken YAML: {problem}"
    if error.context:
        what += f", {error.context}"
        if error.context_mark is not None:
            what += f" that began in line {error.context_mark.line + 1}"
    hint = next((hint for sign, hint in _HINTS.items() if sign in what), None)
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return UserError(what, hint=hint, file=file)
    return UserError(what, hint=hint, file=file, **_mark(mark)._asdict())


def _mark(mark: StreamMark) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


class _Builder:
    """Turns composed nodes into plain data, noting the place of each."""

    def __init__(self, file: str | None) -> None:
        self.file = file
        self.keys: dict[Place, Mark] = {}
        self.values: dict[Place, Mark] = {}

    def build(self, top: Node | None) -> Source:
        if top is None or _is_empty(top):
            raise UserError("is empty", file=self.file)
        data = self._value(top, ())
        if not isinstance(data, dict):
            raise self._error(top, f"the file holds {describe(data)}, not keys and values")
        return Source(self.file, data, self.keys, self.values)

    def _error(self, node: Node, what: str, hint: str | None = None) -> UserError:
        return UserError(what, hint=hint, file=self.file, **_mark(node.start_mark)._asdict())

    def _value(self, node: Node, place: Place) -> Data:
        if len(place) > MAX_DEPTH:
            raise self._error(node, f"nested more than {MAX_DEPTH} deep")
        if len(self.values) >= MAX_VALUES:
            raise self._error(node, f"the file expands to more than {MAX_VALUES} values")
        self.values[place] = _mark(node.start_mark)
        if isinstance(node, MappingNode):
            return self._mapping(node, place)
        if isinstance(node, SequenceNode):
            return [self._value(item, (*place, i)) for i, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: MappingNode, place: Place) -> dict[str, Data]:
        data: dict[str, Data] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                raise self._error(key_node, "a key must be plain text")
            key = key_node.value  # as written: `1: {kind: host}` names a node "1"
            where = (*place, key)
            if key in data:
                first = f"it stands in line {self.keys[where].line} already"
                raise self._error(key_node, f"duplicate key {key!r}", first)
            self.keys[where] = _mark(key_node.start_mark)
            data[key] = self._value(value_node, where)
            if _is_empty(value_node):  # ruamel puts nothing where the next thing begins
                self.values[where] = _mark(key_node.end_mark)
        return data

    def _scalar(self, node: Node) -> Data:
        prefix, _, kind = str(node.ctag).rpartition(":")
        if prefix != "tag:yaml.org,2002" or kind == "binary":
            raise self._error(node, f"the tag {node.ctag} is not supported")
        return _plain(node.value, kind)


def _plain(text: str, kind: str) -> Data:
    """Read a scalar; what its type's notation does not fit stays text."""
    try:
        if kind == "int" and len(text) <= MAX_DIGITS:
            return int(text.replace("_", ""), 0)
        if kind == "float":
            return Decimal(text)
    except ValueError:
        return text
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    return text


def _is_empty(node: Node) -> bool:
    return isinstance(node, ScalarNode) and str(node.ctag) == "tag:yaml.org,2002:null"


def describe(data: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false"}
    if data is None:
        return "nothing"
    return names.get(type(data), "a number")
