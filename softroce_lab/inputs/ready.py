# SPDX-License-Identifier: GPL-2.0-or-later
"""Finds the file that a user means: a path, or the bare name of a ready-made one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from softroce_lab.errors import UserError
from softroce_lab.inputs.validation import did_you_mean

NOWHERE: Mapping[str, Path] = MappingProxyType({})


def find(
    where: str | os.PathLike[str],
    folder: Path,
    what: str,
    elsewhere: Mapping[str, Path] = NOWHERE,
) -> Path:
    """Resolve a path, or a bare name: here, here with `.yaml`, then in the ready `folder`.

    A path is returned as it is, there or not. UserError if a bare name is nowhere; it knows what
    the ready files of other commands are called, which `elsewhere` has by command.
    """
    path = Path(where)
    if path.name != os.fspath(where) or path.suffix:
        return path
    here = path.with_name(path.name + ".yaml") if path.name else path
    for candidate in (path, here, folder / here):
        # Not Path.is_file, which raises for a name too long and a folder that may not be searched.
        if os.path.isfile(candidate):  # noqa: PTH113
            return candidate
    if path.name and os.path.isdir(path):  # noqa: PTH112 - as above
        raise UserError(f"{path} is a folder", hint=f"name a file in it, or a ready {what}")
    known = sorted(file.stem for file in folder.glob("*.yaml"))
    hint = did_you_mean(path.name, known)
    for command, other in elsewhere.items():
        if (other / here.name).is_file():
            hint = f"{command} {path} runs that"
    raise UserError(f"no {what} called {os.fspath(where)!r}", hint=hint)
