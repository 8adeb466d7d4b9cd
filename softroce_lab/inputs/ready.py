# SPDX-License-Identifier: GPL-2.0-or-later
"""Finds the file that a user means: a path, or the bare name of a ready-made one."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from softroce_lab.errors import UserError
from softroce_lab.inputs.validation import did_you_mean, listed

NOWHERE: Mapping[str, Path] = MappingProxyType({})


def find(
    where: str | os.PathLike[str],
    folder: Path,
    what: str,
    elsewhere: Mapping[str, Path] = NOWHERE,
    more: Sequence[Path] = (),
) -> Path:
    """Resolve a path, or a bare name: here, here with `.yaml`, in the ready `folder`, in `more`.

    UserError if it is nowhere, with the nearest name; it knows what the ready files of other
    commands are called, which `elsewhere` has by command.
    """
    path = Path(where)
    if path.name != os.fspath(where) or path.suffix:
        if not _may_be_there(path):
            hint = _near(path, (folder, *more), what)
            raise UserError("cannot be read: No such file or directory", hint=hint, file=str(path))
        return path
    here = path.with_name(path.name + ".yaml") if path.name else path
    for candidate in (path, here, *(each / here for each in (folder, *more))):
        # Not Path.is_file, which raises for a name too long and a folder that may not be searched.
        if os.path.isfile(candidate):  # noqa: PTH113
            return candidate
    if path.name and os.path.isdir(path):  # noqa: PTH112 - as above
        raise UserError(f"{path} is a folder", hint=f"name a file in it, or a ready {what}")
    known = _ready((folder, *more))
    hint = did_you_mean(path.name, known)
    for command, other in elsewhere.items():
        if (other / here.name).is_file():
            hint = f"{command} {path} runs that"
    raise UserError(f"no {what} called {os.fspath(where)!r}", hint=hint)


def _may_be_there(path: Path) -> bool:
    """False: it is not. Whatever else is wrong with it is found when it is read."""
    try:
        path.stat()
    except FileNotFoundError:
        return os.path.islink(path)  # noqa: PTH114 - which points nowhere
    except (OSError, ValueError):
        pass
    return True


def _near(path: Path, folders: Sequence[Path], what: str) -> str:
    files = [each for each in path.parent.glob("*") if each.suffix == path.suffix]
    beside = {each.stem: str(each) for each in files}
    if near := difflib.get_close_matches(path.stem, beside, n=1):
        return f"did you mean {beside[near[0]]!r}?"
    ready = _ready(folders)
    near = difflib.get_close_matches(path.stem, ready, n=1)
    if near:
        return f"did you mean {near[0]!r}, a ready {what}?"
    return f"a file, or a ready {what} by its name: {listed(ready)}"


def _ready(folders: Sequence[Path]) -> list[str]:
    return sorted(file.stem for folder in folders for file in folder.glob("*.yaml"))
