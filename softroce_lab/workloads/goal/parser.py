# SPDX-License-Identifier: GPL-2.0-or-later
"""The grammar of GOAL files.

It is that of LogGOPSim's txt2bin (github.com/spcl/LogGOPSim, src/LogGOPSim/txt2bin.re); comments
may also follow an operation, and what a dependency names may also come later in the rank.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterator
from typing import NamedTuple

from softroce_lab.errors import UserError
from softroce_lab.inputs.validation import did_you_mean
from softroce_lab.workloads.message import MAX_MESSAGE_BYTES


class Act(enum.Enum):
    """What an operation does."""

    SEND = "send"
    RECEIVE = "recv"
    COMPUTE = "calc"


@dataclasses.dataclass(slots=True)
class Operation:
    """An operation of a rank."""

    act: Act
    amount: int  # bytes; of a computation, nanoseconds
    line: int
    column: int
    peer: int = -1  # a rank
    tag: int = 0
    cpu: int = 0
    label: str | None = None
    requires: list[int] = dataclasses.field(default_factory=list)  # of the same rank
    irequires: list[int] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.label or self.act.value} (line {self.line})"


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """The operations of all ranks, in the file's order."""

    file: str
    ranks: list[list[Operation]]

    def error(self, at: Operation, what: str, hint: str | None = None) -> UserError:
        """An error at an operation."""
        return UserError(what, hint=hint, file=self.file, line=at.line, column=at.column)


_PATTERN = re.compile(
    r"(?P<space>[ \t\r]+)|(?P<newline>\n[ \t\r\n]*)|(?P<comment>//[^\n]*|/\*.*?\*/)"
    r"|(?P<number>-?[0-9]+)|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>[:{}])|(?P<other>.)",
    re.DOTALL,
)
_SHOWN = 24  # characters of a word in a complaint


class Token(NamedTuple):
    """A word, a number, a sign, the end of a line or the end of the file."""

    kind: str
    text: str
    line: int  # both counted from 1
    column: int

    def __str__(self) -> str:
        if self.kind in ("newline", "end"):
            return f"the end of the {'line' if self.kind == 'newline' else 'file'}"
        return repr(self.text if len(self.text) <= _SHOWN else self.text[:_SHOWN] + "...")


def tokens(text: str, file: str) -> Iterator[Token]:
    """All of them, without comments. UserError for a character that begins nothing."""
    line, begins = 1, 0
    for found in _PATTERN.finditer(text):
        kind, word = found.lastgroup or "", found[0]
        token = Token(kind, word, line, found.start() - begins + 1)
        if kind == "other":
            what = f"a GOAL file has no {word!r}"
            if text.startswith("/*", found.start()):
                what = "this comment has no end"
            raise UserError(what, file=file, line=token.line, column=token.column)
        if kind not in ("space", "comment"):
            yield token
        if "\n" in word:
            line += word.count("\n")
            begins = found.start() + word.rindex("\n") + 1
    yield Token("end", "", line, len(text) - begins + 1)


MAX_RANKS = 1 << 16
MAX_COMPUTE_NS = 10**15  # 11 days
_MAX_WORD = (1 << 32) - 1
_MAX_DIGITS = 20

_ACTS = {act.value: act for act in Act}
_KEYWORDS = (*_ACTS, "rank", "num_ranks")
_DEPENDENCIES = ("requires", "irequires")
_ATTRIBUTES = {Act.SEND: ("tag", "cpu", "nic"), Act.RECEIVE: ("tag", "cpu", "nic"),
               Act.COMPUTE: ("cpu", "nic")}  # fmt: skip


def parse(text: str, file: str) -> Program:
    """A file's text. UserError with line and column for what is not in the grammar."""
    words = _Words(text, file)
    words.skip_lines()
    words.word("num_ranks")
    at = words.next
    count = words.number("how many ranks", MAX_RANKS)
    if count < 2:
        raise words.error(at, "a workload has two ranks at least")
    ranks: list[list[Operation] | None] = [None] * count
    while words.skip_lines().kind != "end":
        words.word("rank")
        at = words.next
        rank = words.rank(count)
        if ranks[rank] is not None:
            raise words.error(at, f"rank {rank} stands twice")
        ranks[rank] = _Rank(words, rank, count).operations()
    return Program(file, [each or [] for each in ranks])


class _Words:
    """Takes token after token; `next` is the one that was not taken yet."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._tokens = tokens(text, file)
        self.next = next(self._tokens)

    def error(self, at: Token, what: str, hint: str | None = None) -> UserError:
        return UserError(what, hint=hint, file=self._file, line=at.line, column=at.column)

    def expected(self, what: str) -> UserError:
        return self.error(self.next, f"expected {what}, found {self.next}")

    def take(self) -> Token:
        token = self.next
        self.next = next(self._tokens, token)
        return token

    def skip_lines(self) -> Token:
        while self.next.kind == "newline":
            self.take()
        return self.next

    def word(self, word: str) -> Token:
        if self.next.text != word:
            raise self.expected(repr(word))
        return self.take()

    def number(self, what: str, most: int) -> int:
        if self.next.kind != "number":
            raise self.expected(what)
        token = self.take()
        if len(token.text) > _MAX_DIGITS or not 0 <= int(token.text) <= most:
            raise self.error(token, f"{what}: {token} is not between 0 and {most}")
        return int(token.text)

    def rank(self, count: int) -> int:
        token = self.next
        if token.kind != "number":
            raise self.expected("a rank")
        self.take()
        if len(token.text) > _MAX_DIGITS or not 0 <= int(token.text) < count:
            raise self.error(token, f"there is no rank {token.text[:_MAX_DIGITS]}: {count} ranks")
        return int(token.text)

    def end_of_line(self) -> None:
        if self.next.kind not in ("newline", "end") and self.next.text != "}":
            raise self.expected("the end of the line")

    def label(self) -> Token:
        if self.next.kind != "word" or self.next.text in _KEYWORDS:
            raise self.expected("a label")
        return self.take()


class _Rank:
    """A rank's block, behind the word and the number."""

    def __init__(self, words: _Words, rank: int, count: int) -> None:
        self._words, self._rank, self._count = words, rank, count
        self._operations: list[Operation] = []
        self._labels: dict[str, int] = {}
        self._dependencies: list[tuple[Token, str, Token]] = []

    def operations(self) -> list[Operation]:
        words = self._words
        words.word("{")
        while words.skip_lines().text != "}":
            self._statement()
            words.end_of_line()
        words.take()
        for dependent, word, required in self._dependencies:
            operation = self._operations[self._index(dependent)]
            getattr(operation, word).append(self._index(required))
        return self._operations

    def _index(self, label: Token) -> int:
        if label.text not in self._labels:
            hint = did_you_mean(label.text, self._labels)
            raise self._words.error(label, f"rank {self._rank} has no label {label}", hint)
        return self._labels[label.text]

    def _statement(self) -> None:
        words, first = self._words, self._words.next
        if first.text in _ACTS:
            self._operation(first, None)
            return
        if first.kind != "word" or first.text in _KEYWORDS:
            raise words.expected("send, recv, calc, a label or '}'")
        label = words.take()
        if words.next.text == ":":
            words.take()
            if label.text in self._labels:
                line = self._operations[self._labels[label.text]].line
                raise words.error(label, f"label {label} stands in line {line} already")
            self._labels[label.text] = len(self._operations)
            self._operation(first, label.text)
        elif words.next.text in _DEPENDENCIES:
            word = words.take().text
            self._dependencies.append((label, word, words.label()))
        else:
            raise words.expected("':', requires or irequires")

    def _operation(self, at: Token, label: str | None) -> None:
        words = self._words
        act = _ACTS.get(words.next.text)
        if act is None:
            raise words.expected("send, recv or calc")
        words.take()
        if act is Act.COMPUTE:
            amount = words.number("a time in nanoseconds", MAX_COMPUTE_NS)
        else:
            amount = words.number("a size in bytes", MAX_MESSAGE_BYTES)
            words.word("b")
        operation = Operation(act, amount, at.line, at.column, label=label)
        if act is not Act.COMPUTE:
            operation.peer = self._peer(act)
        self._attributes(operation)
        self._operations.append(operation)

    def _peer(self, act: Act) -> int:
        self._words.word("to" if act is Act.SEND else "from")
        at = self._words.next
        if act is Act.RECEIVE and at.text == "-1":
            hint = "name the rank whose message is received"
            raise self._words.error(at, "a receive from any rank is not supported", hint)
        peer = self._words.rank(self._count)
        if peer == self._rank:
            raise self._words.error(at, f"rank {peer} is on both ends of this message")
        return peer

    def _attributes(self, operation: Operation) -> None:
        words, left = self._words, list(_ATTRIBUTES[operation.act])
        while words.next.text in left:
            word = words.take().text
            left.remove(word)
            if word == "tag" and words.next.text == "-1":
                hint = "name the tag of the message"
                raise words.error(words.next, "any tag is not supported", hint)
            number = words.number(f"a {word}", _MAX_WORD)
            if word != "nic":  # a host has one
                setattr(operation, word, number)
