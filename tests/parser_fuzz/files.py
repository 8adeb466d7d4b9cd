# SPDX-License-Identifier: GPL-2.0-or-later
"""Files for parsers that take paths, and what complaints about them must say."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path


@functools.cache
def _folder() -> Path:
    """Of this process, for its time."""
    folder = Path(tempfile.mkdtemp(prefix="softroce-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def file_of(name: str, data: bytes) -> Path:
    """A file of this name that holds the input."""
    path = _folder() / name
    path.write_bytes(data)
    return path


def must_name(path: Path, error: Exception) -> None:
    """A complaint about a file begins with its name, so that the user finds it."""
    assert str(error).startswith(str(path)), error
