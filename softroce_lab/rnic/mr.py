# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory regions: numpy arrays that the RNIC may touch, by key and within bounds."""

from __future__ import annotations

import ctypes
import errno
import mmap
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.rnic.base import Closable, table
from softroce_lab.rnic.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_WRITE,
)
from softroce_lab.rnic.errors import PyverbsRDMAError, PyverbsUserError
from softroce_lab.rnic.pd import PD

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap | npt.NDArray[Any]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_WRITES = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC

# Memory of regions that were forgotten while work requests used them: the RNIC may still write it.
_orphans: list[tuple[Any, int, Bytes]] = []


def _let_orphans_go() -> None:
    for orphan in list(_orphans):
        endpoint, lkey, _ = orphan
        try:
            endpoint.deregister_memory(lkey)
        except OSError:
            continue
        _orphans.remove(orphan)


class MR(Closable):
    """A region of `length` zeroed bytes, of a buffer's bytes, or of memory at an address.

    The buffer stays the caller's and is used in place; `array` shows its bytes.
    """

    close_rank = 2

    def __init__(
        self, pd: PD, length: int | Buffer, access: int = 0, address: int | None = None
    ) -> None:
        self.array = _bytes_of(length, address)
        self.access = access
        self._endpoint = pd.ctx.endpoint
        self.lkey = self._register(pd)
        super().__init__(pd)
        self.pd = pd

    def _register(self, pd: PD) -> int:
        _let_orphans_go()
        what = f"Failed to register a MR. length: {self.length}, access flags: {self.access}"
        remote_only = self.access & _WRITES and not self.access & IBV_ACCESS_LOCAL_WRITE
        if remote_only:  # IBA 10.6.3.1: remote writes need local write
            raise PyverbsRDMAError(what, errno.EINVAL)
        if self.access & _WRITES and not self.array.flags.writeable:
            raise PyverbsRDMAError(what, errno.EFAULT, hint="the buffer is read-only")
        try:
            key = self._endpoint.register_memory(self.buf, self.length, self.access, pd.handle)
        except OSError as error:
            raise PyverbsRDMAError(what, error.errno or 0) from error
        return int(key)

    @property
    def buf(self) -> int:
        """Address of the first byte."""
        return int(self.array.ctypes.data)

    @property
    def length(self) -> int:
        """Length in bytes."""
        return self.array.size

    @property
    def rkey(self) -> int:
        """The key for remote access; the RNIC has one key for both."""
        return self.lkey

    def read(self, length: int, offset: int) -> bytes:
        """`length` bytes from `offset` on."""
        return self.array[self._range(length, offset)].tobytes()

    def write(self, data: str | Buffer, length: int, offset: int = 0) -> None:
        """Copy the first `length` bytes of `data` to `offset`."""
        source = _bytes_of(data.encode() if isinstance(data, str) else data, None)
        if length > source.size:
            raise PyverbsUserError(f"{length} bytes of a buffer of {source.size}")
        self.array[self._range(length, offset)] = source[:length]

    def _range(self, length: int, offset: int) -> slice:
        if self.closed:
            raise PyverbsUserError("the MR is closed")
        if length < 0 or offset < 0 or offset + length > self.length:
            raise PyverbsUserError(
                f"bytes {offset} to {offset + length} are outside the MR of {self.length} bytes"
            )
        return slice(offset, offset + length)

    def _release(self) -> None:
        try:
            self._endpoint.deregister_memory(self.lkey)
        except OSError as error:
            raise PyverbsRDMAError("Failed to dereg MR", error.errno or 0) from error
        self.array = np.empty(0, np.uint8)

    def __del__(self) -> None:
        super().__del__()
        if not getattr(self, "closed", True):
            _orphans.append((self._endpoint, self.lkey, self.array))

    def __str__(self) -> str:
        rows = [("lkey", self.lkey), ("rkey", self.rkey), ("length", self.length)]
        return "MR\n" + table([*rows, ("buf", self.buf), ("access flags", self.access)])


def _bytes_of(memory: int | Buffer, address: int | None) -> Bytes:
    if isinstance(memory, int):
        if address is None:
            return np.zeros(max(memory, 0), np.uint8)
        memory = memoryview((ctypes.c_uint8 * memory).from_address(address)).cast("B")
    try:
        return np.frombuffer(memory, np.uint8)
    except (BufferError, TypeError, ValueError) as error:
        raise PyverbsUserError(f"Not a buffer of contiguous bytes: {error}") from error
