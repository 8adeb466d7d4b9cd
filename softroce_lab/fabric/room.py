# SPDX-License-Identifier: GPL-2.0-or-later
"""A file system that takes no more is the machine's state, not a bug."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from softroce_lab.errors import RunError

HINT = "`df -h /run` and `df -i /run` show what room is left there"

_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


@contextlib.contextmanager
def needing_room(directory: Path) -> Iterator[None]:
    """Turn the OSError of a file system that is full, read-only or broken into a RunError.

    `directory` is named where the error names no file.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        where = error.filename or directory
        raise RunError(f"cannot write {where}: {error.strerror}", hint=HINT) from error
