# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a file can be written: refused before the work whose result it is to hold."""

from __future__ import annotations

import os
from pathlib import Path

from softroce_lab.errors import UserError


def check(file: Path, option: str) -> None:
    """UserError if a user may not write `file`, which `option` names. Nothing is opened."""
    if file.is_dir():
        why = "it is a folder"
    elif file.exists():
        why = "" if os.access(file, os.W_OK) else "permission denied"
    elif not file.parent.is_dir():
        why = f"there is no folder {file.parent}"
    else:
        why = "" if os.access(file.parent, os.W_OK) else f"{file.parent} may not be written"
    if why:
        raise UserError(f"cannot write {file}: {why}", hint=f"{option}: where you may write a file")
