# SPDX-License-Identifier: GPL-2.0-or-later
"""The words of a GOAL file, each with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from softroce_lab.errors import UserError

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
