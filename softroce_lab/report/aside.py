# SPDX-License-Identifier: GPL-2.0-or-later
"""Files that are written aside and renamed: what is there under the name is whole."""

from __future__ import annotations

import os
from pathlib import Path

from softroce_lab.errors import RunError
from softroce_lab.telemetry.rundir import give_to_user


def write(path: Path, content: bytes) -> None:
    """Write a file, or leave nothing of it. RunError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_bytes(content)
        give_to_user(fresh)
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        hint = "-o FILE: in a folder that is there, with room"
        raise RunError(f"cannot write {path}: {error.strerror or error}", hint=hint) from error
