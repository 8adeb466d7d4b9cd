# SPDX-License-Identifier: GPL-2.0-or-later
"""File systems that a lab mounts in its own directory, known by their sources."""

from __future__ import annotations

import contextlib
from pathlib import Path

from softroce_lab.fabric.net import syscalls


def mount(path: Path, kind: str, source: str) -> None:
    """Mount a new file system at `path`; `source` names it in the list of mounts."""
    path.mkdir(mode=0o700, exist_ok=True)
    syscalls.mount(source, str(path), kind, 0)


def is_mounted(path: Path, kind: str, source: str) -> bool:
    """Whether what is mounted at `path` is the file system called `source`."""
    mounts = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
    tops = [fields for fields in map(_fields, mounts) if fields[0] == str(path)]
    return bool(tops) and tops[-1] == (str(path), kind, source)


def _fields(line: str) -> tuple[str, str, str]:
    """Mount point, type and source of a line of mountinfo, proc_pid_mountinfo(5)."""
    place, _, kind = line.partition(" - ")
    file_system, source, *_ = kind.split(" ")
    return place.split(" ")[4], file_system, source


def unmount(path: Path, kind: str, source: str) -> None:
    """Unmount it, with all mounts in it, if this lab owns it, and remove the mount point."""
    if is_mounted(path, kind, source):
        syscalls.umount(str(path))
    with contextlib.suppress(FileNotFoundError):
        path.rmdir()
