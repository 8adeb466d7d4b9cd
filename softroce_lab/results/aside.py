# SPDX-License-Identifier: GPL-2.0-or-later
"""Files that are written aside and renamed: what is there under the name is whole."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

from softroce_lab import writable
from softroce_lab.errors import RunError
from softroce_lab.telemetry.rundir import give_to_user


@contextlib.contextmanager
def writing(path: Path, option: str = "-o FILE") -> Iterator[Path]:
    """Where to write what is `path` in the end; after an exception nothing of it is left.

    Nobody can guess its name: a link of that name would choose which file is written.

    UserError if `path`, which `option` names, cannot be written; RunError if that fails meanwhile.
    """
    writable.check(path, option)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        yield fresh
        give_to_user(fresh)
        fresh.replace(path)
    except OSError as error:
        what = f"cannot write {path}: {error.strerror or error}"
        raise RunError(what, hint=f"{option}: where there is room") from error
    finally:
        with contextlib.suppress(OSError):  # it is renamed, or its folder is none
            fresh.unlink()


def write(path: Path, content: bytes) -> None:
    """Write a file, or leave nothing of it. UserError, RunError: see `writing`."""
    with writing(path) as fresh:
        fresh.write_bytes(content)
