# SPDX-License-Identifier: GPL-2.0-or-later
"""What unmodified programs look for in /dev and /sys, in a mount namespace of their own.

Neither directory can be extended for one process alone. So a file system in memory takes the place
of /dev and of /sys/class there, with all that was in them mounted into it, and the devices besides.
It all goes with the last process of the namespace, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import sysconfig
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from softroce_lab.fabric.net import syscalls
from softroce_lab.programs.device import device

LIBRARIES = "libibverbs.so.1", "librdmacm.so.1"
_INSTALLED = Path("/usr/lib", sysconfig.get_config_var("MULTIARCH") or ""), Path("/usr/lib64")

DEV = Path("/dev")
SYS, CLASSES = Path("/sys"), Path("/sys/class")
_INFINIBAND = "infiniband"
_VERBS = "infiniband_verbs"
_ANYTHING = "/dev/null"  # a character device that may be opened, which is all that programs try


def separate(*paths: Path) -> None:
    """Give this process a mount namespace in which it may mount at `paths`, unseen by others.

    Only the mounts that hold `paths` are made private: what is mounted elsewhere meanwhile, such as
    the bpffs of another lab, still shows in both mount namespaces.
    """
    syscalls.unshare(syscalls.CLONE_NEWNS)
    for path in paths:
        syscalls.mount("", mount_point(path.resolve()), None, syscalls.MS_PRIVATE)


def show(class_files: Mapping[str, str], devices: int, libraries: Path) -> None:
    """Let this process and its children have so many devices; no other process sees them.

    The folder `libraries` has the lab's. They are mounted over the installed ones: programs find
    those even if somebody clears LD_LIBRARY_PATH. OSError without the rights.
    """
    installed = {
        path: libraries / name
        for name in LIBRARIES
        for path in (folder / name for folder in _INSTALLED)
        if path.exists()
    }
    separate(DEV, SYS, *installed)
    for path, library in installed.items():
        syscalls.mount(str(library), str(path), None, syscalls.MS_BIND)
    with _rebuilt(CLASSES, without={_INFINIBAND, _VERBS}):
        for name, text in class_files.items():
            path = CLASSES / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    with _rebuilt(DEV, without={_INFINIBAND}):
        (DEV / _INFINIBAND).mkdir()
        for rail in range(devices):
            node = DEV / _INFINIBAND / device.character_device(rail)
            node.touch()
            syscalls.mount(_ANYTHING, str(node), None, syscalls.MS_BIND)


@contextlib.contextmanager
def _rebuilt(directory: Path, without: Collection[str]) -> Iterator[None]:
    """Put a file system in memory over `directory`, with what was in there."""
    before = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        with os.scandir(directory) as entries:
            known = sorted(entries, key=lambda entry: entry.name)
        kinds = {entry.name: _kind(entry) for entry in known if entry.name not in without}
        links = {n: (directory / n).readlink() for n, kind in kinds.items() if kind == "link"}
        syscalls.mount("softroce_lab", str(directory), "tmpfs", 0, "mode=755,size=1m")
        for name, kind in kinds.items():
            path = directory / name
            if kind == "link":
                path.symlink_to(links[name])
                continue
            path.mkdir() if kind == "directory" else path.touch()
            source = f"/proc/self/fd/{before}/{name}"
            with contextlib.suppress(FileNotFoundError):  # it went meanwhile
                syscalls.mount(source, str(path), None, syscalls.MS_BIND | syscalls.MS_REC)
        yield
    finally:
        os.close(before)


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "link"
    return "directory" if entry.is_dir(follow_symlinks=False) else "file"


def mount_point(path: Path) -> str:
    """Of the file system that a path is in, which is no link."""
    while not path.is_mount():
        path = path.parent
    return str(path)
