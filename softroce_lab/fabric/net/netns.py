# SPDX-License-Identifier: GPL-2.0-or-later
"""Network namespaces with names that `ip netns list` shows, and the proof of their owner.

A namespace begins unnamed and a name's file begins unlinked (O_TMPFILE): both die with their
maker. Their identities go into the ledger, and only then do they become visible. So whatever a
crash leaves behind differs from a stranger's: the namespace by its cookie, which the kernel
gives out once per boot (SO_NETNS_COOKIE, Linux 5.14), the file by its inode.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import os
import re
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from softroce_lab.errors import EnvironmentLackError, UserError
from softroce_lab.fabric.net import syscalls

DIRECTORY = Path("/run/netns")

_OWN = "/proc/thread-self/ns/net"
_SO_NETNS_COOKIE = 71
_NS_GET_NSTYPE = 0xB703


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a namespace and of the file of its name, unique since boot."""

    cookie: int  # of the namespace, never used twice
    inode: int  # of the namespace on nsfs: what /proc/PID/ns/net shows
    file_device: int  # of the file that the name is, below the mount
    file_inode: int


@contextlib.contextmanager
def _home_again() -> Iterator[None]:
    """On leaving, the calling thread is in the namespace it came from."""
    home = os.open(_OWN, os.O_RDONLY)
    try:
        yield
    finally:
        syscalls.setns(home, syscalls.CLONE_NEWNET)
        os.close(home)


@contextlib.contextmanager
def entered(fd: int) -> Iterator[None]:
    """The calling thread works in the namespace behind `fd`; other threads stay where they are."""
    with _home_again():
        syscalls.setns(fd, syscalls.CLONE_NEWNET)
        yield


def create() -> int:
    """A descriptor of a new namespace that has no name; it exists while something holds it."""
    with _home_again():
        syscalls.unshare(syscalls.CLONE_NEWNET)
        return os.open(_OWN, os.O_RDONLY)


def cookie(fd: int) -> int:
    """The number of the namespace behind `fd`, unique since boot."""
    with entered(fd), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        (number,) = struct.unpack("=Q", probe.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8))
    return int(number)


def is_namespace(fd: int) -> bool:
    """Whether `fd` is a network namespace and not, for example, a file without a mount."""
    try:
        return fcntl.ioctl(fd, _NS_GET_NSTYPE) == syscalls.CLONE_NEWNET
    except OSError:
        return False


def prepare_directory() -> None:
    """Make /run/netns as iproute2 does: a shared mount, so that names reach every mount tree."""
    DIRECTORY.mkdir(mode=0o755, parents=True, exist_ok=True)
    target = str(DIRECTORY)
    shared = syscalls.MS_SHARED | syscalls.MS_REC
    try:
        syscalls.mount("", target, "none", shared)
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: it is no mount point yet
            raise
        syscalls.mount(target, target, "none", syscalls.MS_BIND | syscalls.MS_REC)
        syscalls.mount("", target, "none", shared)


def unlinked_name() -> int:
    """A descriptor of a file in /run/netns that has no name yet."""
    try:
        return os.open(DIRECTORY, os.O_TMPFILE | os.O_WRONLY, 0o444)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
            raise
        raise EnvironmentLackError(
            "O_TMPFILE on /run", hint="mount a tmpfs on /run, as distributions do"
        ) from error


def identify(namespace: int, name_file: int) -> Identity:
    status = os.fstat(name_file)
    return Identity(cookie(namespace), os.fstat(namespace).st_ino, status.st_dev, status.st_ino)


def refuse_taken(names: Iterable[str]) -> None:
    """UserError if a name exists already: a stranger's namespace is never touched."""
    for name in names:
        if os.path.lexists(DIRECTORY / name):
            raise _taken(name)


def _taken(name: str) -> UserError:
    return UserError(
        f"the network namespace {name} exists already and is not this lab's",
        hint=f"choose another lab name, or, if nobody needs it: ip netns delete {name}",
    )


def publish(name: str, namespace: int, name_file: int) -> None:
    """Give the namespace its name. UserError if the name was taken meanwhile."""
    path = str(DIRECTORY / name)
    try:
        # With a directory descriptor Python calls linkat(2) with AT_SYMLINK_FOLLOW.
        os.link(f"/proc/self/fd/{name_file}", path, src_dir_fd=name_file, follow_symlinks=True)
    except FileExistsError as error:
        raise _taken(name) from error
    syscalls.mount(f"/proc/thread-self/fd/{namespace}", path, None, syscalls.MS_BIND)


def opened(name: str, identity: Identity) -> int | None:
    """A descriptor of the namespace called `name`, or None if that is absent or not ours."""
    try:
        fd = os.open(DIRECTORY / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if is_namespace(fd) and cookie(fd) == identity.cookie:
        return fd
    os.close(fd)
    return None


def remove(name: str, identity: Identity) -> None:
    """Take the name away if it is still ours. The namespace dies when its last user leaves it."""
    fd = opened(name, identity)
    if fd is not None:
        os.close(fd)
        syscalls.umount(str(DIRECTORY / name))
    remove_file(name, identity)


def remove_file(name: str, identity: Identity) -> None:
    """Unlink the file that the name was, if it is ours and nothing is mounted on it."""
    path = DIRECTORY / name
    with contextlib.suppress(FileNotFoundError):
        status = path.lstat()
        if (status.st_dev, status.st_ino) == (identity.file_device, identity.file_inode):
            path.unlink()


def inhabitants(inodes: Iterable[int]) -> dict[int, list[int]]:
    """Which processes are in which of these namespaces: nsfs inode -> process ids."""
    found: dict[int, list[int]] = {inode: [] for inode in inodes}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            link = str((entry / "ns/net").readlink()) if entry.name.isdecimal() else ""
            match = re.fullmatch(r"net:\[(\d+)\]", link)
            if match and int(match[1]) in found:
                found[int(match[1])].append(int(entry.name))
    return found
