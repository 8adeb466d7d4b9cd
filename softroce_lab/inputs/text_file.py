# SPDX-License-Identifier: GPL-2.0-or-later
"""Text files of a user's, which may be anything."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from softroce_lab.errors import UserError


def read(path: Path, most_bytes: int) -> str:
    """The text of a regular file of at most so many bytes, a multiple of a MiB. UserError."""
    file = str(path)
    try:
        # O_NONBLOCK: opening a FIFO that nobody writes must not hang.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as stream:  # noqa: PTH123 - a descriptor, not a path
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UserError("is not a regular file", file=file)
            content = stream.read(most_bytes + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(f"cannot be read: {reason}", file=file) from None
    if len(content) > most_bytes:
        raise UserError(f"is larger than {most_bytes >> 20} MiB", file=file)
    return _decoded(content, file)


def _decoded(content: bytes, file: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UserError("is not a text file in UTF-8", file=file)
    return text
