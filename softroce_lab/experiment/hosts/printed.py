# SPDX-License-Identifier: GPL-2.0-or-later
"""What a command prints: the end of it in bounded memory, and a search in it in bounded time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import NamedTuple

KEPT_BYTES = 1 << 16  # of the end of each command's output
SEARCH_S = 5.0  # for a pattern of the user's, which can take for ever

# A process of its own, because no search of re can be broken off. Its exit status is the answer.
_SEARCH = """
import json, re, sys
pattern, text = json.load(sys.stdin)
match = re.search(pattern, text, re.MULTILINE)
if match:
    print(match.start())
sys.exit(10 if match else 11)
"""
_ANSWERS = {10: True, 11: False}


class Found(NamedTuple):
    """What a search came to."""

    has: bool | None  # None: it took too long
    line: str = ""  # in which the first match begins


class Printed:
    """A pipe for a command's output, and the last KEPT_BYTES that came out of it."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._fd, self.writer = os.pipe()  # the command inherits the latter
        os.set_blocking(self._fd, False)

    def fileno(self) -> int:
        """Readable when there is something to keep."""
        return self._fd

    def read(self) -> int:
        """Keep what has come, one pipe's worth at most: bytes."""
        try:
            got = os.read(self._fd, KEPT_BYTES)
        except BlockingIOError:
            return 0
        self._kept += got
        del self._kept[:-KEPT_BYTES]
        return len(got)

    def clear(self) -> None:
        """Forget all that was printed until now."""
        self.read()
        self._kept.clear()

    def close(self) -> None:
        """Keep what is still in the pipe; nobody can print any more."""
        os.close(self.writer)
        self.read()
        os.close(self._fd)

    @property
    def text(self) -> str:
        """The end of the output."""
        return self._kept.decode("utf-8", "replace")


def search(pattern: str, text: str, limit_s: float = SEARCH_S) -> Found:
    """Whether `text` has the pattern, `^` and `$` of lines, and where."""
    argv = [sys.executable, "-I", "-S", "-c", _SEARCH]
    try:
        done = subprocess.run(
            argv, input=json.dumps([pattern, text]).encode(), stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, timeout=limit_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Found(None)
    has = _ANSWERS.get(done.returncode)
    return Found(has, _line_at(text, int(done.stdout))) if has else Found(has)


def _line_at(text: str, at: int) -> str:
    return text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0].strip()
