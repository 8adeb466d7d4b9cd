# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory regions: numpy arrays that the RNIC may touch, by key and within bounds."""

from __future__ import annotations

import ctypes
import errno
import mmap
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.verbs import enums
from softroce_lab.verbs.base import Closable, ask, expect, expect_unsigned, table
from softroce_lab.verbs.pd import PD
from softroce_lab.verbs.pyverbs_error import PyverbsError, PyverbsRDMAError, PyverbsUserError

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap | npt.NDArray[Any]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_WRITES = (
    enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE | enums.IBV_ACCESS_REMOTE_ATOMIC
)
_RIGHTS = _WRITES | enums.IBV_ACCESS_REMOTE_READ
_NOT_THERE = enums.IBV_ACCESS_MW_BIND | enums.IBV_ACCESS_ON_DEMAND | enums.IBV_ACCESS_HUGETLB
_KNOWN = int(_RIGHTS | _NOT_THERE | enums.IBV_ACCESS_ZERO_BASED | enums.IBV_ACCESS_RELAXED_ORDERING)

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

    The buffer stays the caller's and is used in place; `array` shows its bytes. Memory at an
    address is to stay mapped as long as the region is there. Work requests and peers name the
    first byte by `iova`, which is its address unless it is given (ibv_reg_mr_iova), or 0 with
    enums.IBV_ACCESS_ZERO_BASED.
    """

    close_rank = 2

    def __init__(
        self,
        pd: PD,
        length: int | Buffer = 0,
        access: int = 0,
        address: int | None = None,
        *,
        iova: int | None = None,
    ) -> None:
        expect("pd", pd, PD)
        self.access = expect_unsigned("access", access, 32)
        if address is not None:
            expect_unsigned("address", address, 64)
        if iova is not None:
            expect_unsigned("iova", iova, 64)
        size = length if isinstance(length, int) else "a buffer's"
        failure = f"Failed to register a MR. length: {size}, access flags: {self.access}"
        pd.check_open(failure)
        _check_access(failure, self.access)
        self.array = _bytes_of(failure, length, address or None, self._is_written)
        if self._is_written and not self.array.flags.writeable:
            raise PyverbsRDMAError(failure, errno.EFAULT, hint="the buffer is read-only")
        zero_based = bool(self.access & enums.IBV_ACCESS_ZERO_BASED)
        self.iova = (0 if zero_based else self.buf) if iova is None else iova
        self._endpoint = pd.ctx.endpoint
        self.lkey = self._register(failure, pd)
        super().__init__(pd)
        self.pd = pd
        if pd.on_region is not None:
            pd.on_region(self)

    @property
    def _is_written(self) -> bool:
        return bool(self.access & _WRITES)

    def _register(self, failure: str, pd: PD) -> int:
        _let_orphans_go()
        key = ask(
            failure,
            self._endpoint.register_memory,
            self.buf,
            self.length,
            self.access & _RIGHTS,
            pd.handle,
            self.iova,
        )
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
        failure = "Failed to write"
        source = _bytes_of(failure, data.encode() if isinstance(data, str) else data, None, False)
        expect("length", length, int)
        if length > source.size:
            raise PyverbsUserError(f"{length} bytes of a buffer of {source.size}")
        self.array[self._range(length, offset)] = source[:length]

    def _range(self, length: int, offset: int) -> slice:
        expect("length", length, int)
        expect("offset", offset, int)
        if self.closed:
            raise PyverbsUserError("the MR is closed")
        if length < 0 or offset < 0 or offset + length > self.length:
            raise PyverbsUserError(
                f"bytes {offset} to {offset + length} are outside the MR of {self.length} bytes"
            )
        return slice(offset, offset + length)

    def _release(self) -> None:
        ask("Failed to dereg MR", self._endpoint.deregister_memory, self.lkey)
        self.array = np.empty(0, np.uint8)

    def __del__(self) -> None:
        super().__del__()
        if not getattr(self, "closed", True):
            _orphans.append((self._endpoint, self.lkey, self.array))

    def __str__(self) -> str:
        rows = [("lkey", self.lkey), ("rkey", self.rkey), ("length", self.length)]
        return "MR\n" + table([*rows, ("buf", self.buf), ("access flags", self.access)])


def _check_access(failure: str, access: int) -> None:
    if access & ~_KNOWN:
        raise PyverbsRDMAError(failure, errno.EINVAL, hint="these are no ibv_access_flags")
    if access & _NOT_THERE:
        raise PyverbsRDMAError(failure, errno.EOPNOTSUPP, hint="no windows, no paging on demand")
    if access & _WRITES and not access & enums.IBV_ACCESS_LOCAL_WRITE:  # IBA 10.6.3.1
        raise PyverbsRDMAError(failure, errno.EINVAL, hint="remote writes need local write")


def _bytes_of(failure: str, memory: int | Buffer, address: int | None, is_written: bool) -> Bytes:
    if isinstance(memory, int):
        return _memory_at(failure, memory, address, is_written) if address else _zeroes(memory)
    try:
        return np.frombuffer(memory, np.uint8)
    except (BufferError, TypeError, ValueError) as error:
        raise PyverbsUserError(f"Not a buffer of contiguous bytes: {error}") from error


def _zeroes(length: int) -> Bytes:
    try:
        return np.zeros(max(length, 0), np.uint8)
    except (MemoryError, ValueError, OverflowError) as error:
        raise PyverbsError(f"Failed to allocate MR buffer of size {length}") from error


def _memory_at(failure: str, length: int, address: int, is_written: bool) -> Bytes:
    if length <= 0:
        raise PyverbsRDMAError(failure, errno.EINVAL)
    if not _is_mapped(address, length, is_written):
        raise PyverbsRDMAError(failure, errno.EFAULT, hint="there is no such memory")
    memory = (ctypes.c_uint8 * length).from_address(address)
    return np.frombuffer(memoryview(memory).cast("B"), np.uint8)


def _is_mapped(address: int, length: int, is_written: bool) -> bool:
    """Whether a process may read, and if it is to be written write, all of that memory."""
    rights = "rw" if is_written else "r"
    at, end = address, address + length
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, granted = line.split(maxsplit=2)[:2]
        first, last = (int(bound, 16) for bound in bounds.split("-"))
        if first <= at < last and granted.startswith(rights):
            at = last
        if at >= end:
            return True
    return False
