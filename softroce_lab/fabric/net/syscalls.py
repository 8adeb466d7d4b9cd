# SPDX-License-Identifier: GPL-2.0-or-later
"""System calls that Python 3.11 lacks. Each raises OSError with the kernel's errno."""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWNET = 0x40000000
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MS_SHARED = 1 << 20
MNT_DETACH = 2
UMOUNT_NOFOLLOW = 8
FALLOC_FL_KEEP_SIZE = 1
AF_XDP = 44  # linux/socket.h

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, path: str | None = None) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)


def unshare(flags: int) -> None:
    """unshare(2): give the calling thread new namespaces."""
    _checked(_libc.unshare(flags))


def setns(fd: int, flags: int) -> None:
    """setns(2): move the calling thread, and no other, into the namespace behind `fd`."""
    _checked(_libc.setns(fd, flags))


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2); `data` has options of the file system, as "size=1m"."""
    encoded = [None if text is None else text.encode() for text in (kind, data)]
    arguments = (source.encode(), target.encode(), encoded[0], ctypes.c_ulong(flags), encoded[1])
    _checked(_libc.mount(*arguments), target)


def umount(target: str) -> None:
    """umount2(2), lazily: the mount leaves the tree at once, whoever still uses it."""
    _checked(_libc.umount2(target.encode(), MNT_DETACH | UMOUNT_NOFOLLOW), target)


def bind(fd: int, address: bytes) -> None:
    """bind(2), to an address of a family that the socket module does not have."""
    _checked(_libc.bind(fd, address, len(address)))


def reserve(fd: int, offset: int, length_bytes: int) -> None:
    """fallocate(2): writes to this range of a file will find room. The file's size stays."""
    start, length = ctypes.c_long(offset), ctypes.c_long(length_bytes)
    _checked(_libc.fallocate(fd, FALLOC_FL_KEEP_SIZE, start, length))
