# SPDX-License-Identifier: GPL-2.0-or-later
"""A BPF file system for each lab, so that its pinned maps are its own and end with it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from softroce_lab.fabric.net import syscalls


def mount(path: Path, source: str) -> None:
    """Mount a new BPF file system at `path`; `source` names it in the list of mounts."""
    path.mkdir(mode=0o700, exist_ok=True)
    syscalls.mount(source, str(path), "bpf", 0)


def is_mounted(path: Path, source: str) -> bool:
    """Whether what is mounted at `path` is the BPF file system called `source`."""
    mounts = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
    tops = [fields for fields in map(_fields, mounts) if fields[0] == str(path)]
    return bool(tops) and tops[-1] == (str(path), "bpf", source)


def _fields(line: str) -> tuple[str, str, str]:
    """Mount point, type and source of a line of mountinfo, proc_pid_mountinfo(5)."""
    place, _, kind = line.partition(" - ")
    file_system, source, *_ = kind.split(" ")
    return place.split(" ")[4], file_system, source


def unmount(path: Path, source: str) -> None:
    """Unmount it if this lab owns it, and remove the mount point."""
    if is_mounted(path, source):
        syscalls.umount(str(path))
    with contextlib.suppress(FileNotFoundError):
        path.rmdir()
