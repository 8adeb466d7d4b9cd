# SPDX-License-Identifier: GPL-2.0-or-later
"""A session of tests for itself: two side by side, or two workers of one, do not see each other.

Labs, names of network namespaces and sockets lie in /run, so each process that runs tests has a
/run of its own, in a mount namespace of its own, and a folder of its own for temporary files. What
it starts is in there with it. So what a test left behind is told from what another session does
meanwhile: a process by its mount namespace, and whatever the kernel holds by that process's
descriptors.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from softroce_lab.fabric.net import netns, syscalls
from softroce_lab.paths import LABS

RUN = LABS.parent
_KINDS = ("anon_inode:bpf-map", "anon_inode:bpf-prog", "anon_inode:bpf_link")
_IDS = ("map_id", "prog_id", "link_id")

_inside = False


def enter() -> Callable[[], None]:
    """Put this process, and what it will start, into a session of its own.

    Returns what removes the session's temporary files. Without the rights for a mount namespace,
    where no lab can be either, everything stays as it is; so it does the second time, when a test
    runs pytest in its own process.
    """
    global _inside
    if _inside:
        return lambda: None
    try:
        syscalls.unshare(syscalls.CLONE_NEWNS)
    except PermissionError:
        return lambda: None
    _inside = True
    # Private first, so that nothing reaches other sessions; then shared, as systemd leaves it, so
    # that names of namespaces reach what `lab exec` starts.
    for way in (syscalls.MS_PRIVATE, syscalls.MS_SHARED):
        syscalls.mount("", "/", None, syscalls.MS_REC | way)
    _replace_run()
    return _replace_temporary()


def _replace_run() -> None:
    """A new /run with all that was there, but labs and named network namespaces."""
    before = os.open(RUN, os.O_PATH)
    syscalls.mount("run", str(RUN), "tmpfs", 0, "mode=755")
    for entry in os.scandir(f"/proc/self/fd/{before}"):
        target = RUN / entry.name
        if target in (LABS, netns.DIRECTORY):
            continue
        if entry.is_symlink():
            target.symlink_to(os.readlink(entry))
            continue
        target.mkdir() if entry.is_dir() else target.touch()
        syscalls.mount(entry.path, str(target), None, syscalls.MS_BIND | syscalls.MS_REC)
    os.close(before)


def _replace_temporary() -> Callable[[], None]:
    """A new TMPDIR; pytest's own folders stay where they outlive the session."""
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix="lab-tests-")
    os.chmod(folder, 0o1777)  # noqa: S103 - as /tmp: some tests are another user
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    return lambda: shutil.rmtree(folder, ignore_errors=True)


def members() -> Iterator[Path]:
    """/proc/PID of each process of this session."""
    own = os.readlink("/proc/self/ns/mnt")
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it ended meanwhile
            if entry.name.isdecimal() and os.readlink(entry / "ns/mnt") == own:
                yield entry


def held() -> Iterator[str]:
    """What the session's processes hold by descriptors: sockets, network namespaces, BPF objects.

    As /proc/PID/fd names it, BPF objects with their ids: `map_id 7`.
    """
    for process in members():
        with contextlib.suppress(OSError):  # it ended meanwhile
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                    yield from _object(process, descriptor)


def _object(process: Path, descriptor: Path) -> Iterator[str]:
    name = os.readlink(descriptor)
    if name.startswith(("socket:[", "net:[")):
        yield name
    elif name in _KINDS:
        lines = (process / "fdinfo" / descriptor.name).read_text().splitlines()
        fields = (line.partition(":") for line in lines)
        yield from (f"{key} {value.strip()}" for key, _, value in fields if key in _IDS)
