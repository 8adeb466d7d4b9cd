# SPDX-License-Identifier: GPL-2.0-or-later
"""The files that a user names: the one to send, and the one to write."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from softroce_lab.errors import UserError
from softroce_lab.telemetry.rundir import give_to_user


def size_to_send(path: Path) -> int:
    """Bytes of a regular file that can be read; UserError if it is none or its size is not true."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # never waits for a FIFO
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise UserError(f"{path} is not a regular file", hint="send another one: --file")
            begins = os.read(fd, 1)
        finally:
            os.close(fd)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", hint="--file PATH") from error
    if begins and status.st_size == 0:
        raise UserError(f"{path} does not say how long it is", hint="send a copy of it")
    return status.st_size


class SavedFile:
    """A file that is written next to its target and replaces it when committed."""

    def __init__(self, target: Path) -> None:
        self._target = target.resolve()
        self.path = self._target.with_name(f".{self._target.name}.{os.getpid()}.part")

    def commit(self) -> None:
        """Replace the target: the file is complete."""
        give_to_user(self.path)
        self.path.replace(self._target)


@contextlib.contextmanager
def saving(target: Path | None, source: Path) -> Iterator[SavedFile | None]:
    """A file to save to; what was not committed is gone afterwards.

    UserError if the target is the source, something other than a file, or cannot be written.
    """
    if target is None:
        yield None
        return
    if target.exists() and target.samefile(source):
        raise UserError(f"{target} is the file that is sent", hint="save to another one")
    if target.exists() and not target.is_file():
        raise UserError(f"{target} is not a regular file", hint="save to another one")
    saved = SavedFile(target)
    try:
        saved.path.touch(exist_ok=False)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}", hint="--save PATH") from error
    try:
        yield saved
    finally:
        saved.path.unlink(missing_ok=True)
