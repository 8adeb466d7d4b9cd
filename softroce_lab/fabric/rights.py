# SPDX-License-Identifier: GPL-2.0-or-later
"""Refusals for missing rights or missing room are the state of the machine, not bugs."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from softroce_lab.errors import EnvironmentLackError, RunError


@contextlib.contextmanager
def needing_root() -> Iterator[None]:
    """Turn EPERM and EACCES into an EnvironmentLackError."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES):
            raise
        raise EnvironmentLackError(
            "the rights of root", f"not permitted: {error}", hint="run it as root, or with sudo"
        ) from error


ROOM_HINT = "`df -h /run` and `df -i /run` show what room is left there"

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


@contextlib.contextmanager
def needing_room(directory: Path) -> Iterator[None]:
    """Turn the OSError of a file system that is full, read-only or broken into a RunError.

    `directory` is named where the error names no file.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        where = error.filename or directory
        raise RunError(f"cannot write {where}: {error.strerror}", hint=ROOM_HINT) from error
