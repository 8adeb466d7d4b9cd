# SPDX-License-Identifier: GPL-2.0-or-later
"""What makes the processes of a node those of one host: a hostname, and shared memory of their own.

A lab mounts one file system in memory. Each node has a folder there: `uts` and `ipc` are mounts of
its namespaces (namespaces(7)), `shm` is its /dev/shm. To unmount the file system removes them all.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from softroce_lab.fabric.net import syscalls

DIRECTORY = "hosts"  # the mount point in a lab's directory
SHM = Path("/dev/shm")  # noqa: S108 - where programs look for shared memory
_SHM = "shm"
_KINDS = {"uts": syscalls.CLONE_NEWUTS, "ipc": syscalls.CLONE_NEWIPC}


def create(folder: Path, name: str) -> None:
    """Make the namespaces of a node in a new `folder`; its hostname is `name`."""
    folder.mkdir()
    (folder / _SHM).mkdir()
    (folder / _SHM).chmod(0o1777)
    with _home_again():
        syscalls.unshare(syscalls.CLONE_NEWUTS | syscalls.CLONE_NEWIPC)
        socket.sethostname(name)
        for kind in _KINDS:
            (folder / kind).touch()
            syscalls.mount(_own(kind), str(folder / kind), None, syscalls.MS_BIND)


def enter(folder: Path) -> None:
    """Move the calling thread into the node's namespaces. FileNotFoundError if they are gone."""
    for kind, flag in _KINDS.items():
        with (folder / kind).open("rb") as namespace:
            syscalls.setns(namespace.fileno(), flag)


def mount_shm(folder: Path) -> None:
    """Mount the node's shared memory over /dev/shm, in the caller's own mount namespace."""
    if SHM.is_dir():
        syscalls.mount(str(folder / _SHM), str(SHM), None, syscalls.MS_BIND)


def _own(kind: str) -> str:
    return f"/proc/thread-self/ns/{kind}"


@contextlib.contextmanager
def _home_again() -> Iterator[None]:
    """On leaving, the calling thread is in the namespaces it came from."""
    homes = {kind: os.open(_own(kind), os.O_RDONLY) for kind in _KINDS}
    try:
        yield
    finally:
        for kind, home in homes.items():
            syscalls.setns(home, _KINDS[kind])
            os.close(home)
