# SPDX-License-Identifier: GPL-2.0-or-later
"""One change of a lab's faults at a time, whatever process makes it, and none while it goes down.

Only `lab up` creates the lock's file. A file created again after its removal would be an extra
file in the directory of a lab that goes down, and a lock that no other process shares.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from softroce_lab.errors import RunError

FILE = "faults.lock"

PATIENCE_S = 30.0  # longer than the wire stage may take for one change
_POLL_S = 0.002


def create(directory: Path) -> None:
    """Make the lock's file, which the ledger has."""
    (directory / FILE).touch(mode=0o600)


@contextlib.contextmanager
def changing(directory: Path) -> Iterator[None]:
    """Alone with a lab's faults. RunError if it went down, or if others change them for long."""
    fd = _opened(directory)
    try:
        if not _locked(fd, PATIENCE_S):
            raise RunError(
                f"another process has been changing the faults of the lab {directory.name} for "
                f"{PATIENCE_S:.0f} s",
                hint="it may be stopped: fuser -v " + str(directory / FILE),
            )
        _refuse_gone(directory, fd)
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def ending(directory: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Alone with the faults of a lab that goes down, whose lock's file may be gone already."""
    try:
        fd = os.open(directory / FILE, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        if not _locked(fd, PATIENCE_S):
            say(f"a process that has been changing faults for {PATIENCE_S:.0f} s is not waited for")
        yield
    finally:
        os.close(fd)


def _opened(directory: Path) -> int:
    try:
        return os.open(directory / FILE, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise _gone(directory) from error


def _refuse_gone(directory: Path, fd: int) -> None:
    """RunError if the file went away while we waited, and perhaps another lab came."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(fd), (directory / FILE).stat()):
            return
    raise _gone(directory)


def _gone(directory: Path) -> RunError:
    return RunError(f"the lab {directory.name} went down meanwhile", hint="lab ps")


def _locked(fd: int, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        else:
            return True
