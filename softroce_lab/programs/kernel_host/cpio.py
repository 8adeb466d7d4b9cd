# SPDX-License-Identifier: GPL-2.0-or-later
"""cpio archives as Linux reads an initramfs from: the format `newc`, fields of 8 hex digits.

Documentation/driver-api/early-userspace/buffer-format.rst of the kernel has the format.
"""

from __future__ import annotations

import itertools
import stat

_END = "TRAILER!!!"


class Archive:
    """An archive in memory. Everything in it is root's and of no date, so equal ones are equal."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._inodes = itertools.count(1)

    def folder(self, name: str) -> None:
        """A folder; the one that it is in comes first."""
        self._add(name, stat.S_IFDIR | 0o755, b"", links=2)

    def file(self, name: str, data: bytes, *, mode: int = 0o644) -> None:
        """A regular file."""
        self._add(name, stat.S_IFREG | mode, data)

    def bytes(self) -> bytes:
        """The whole archive."""
        return b"".join([*self._parts, _entry(_END, 0, 0, b"", 1)])

    def _add(self, name: str, mode: int, data: bytes, links: int = 1) -> None:
        self._parts.append(_entry(name, next(self._inodes), mode, data, links))


def _entry(name: str, inode: int, mode: int, data: bytes, links: int) -> bytes:
    text = name.encode() + b"\0"
    owner = group = date = device = 0
    fields = (inode, mode, owner, group, links, date, len(data), *(device,) * 4, len(text), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + text
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
