# SPDX-License-Identifier: GPL-2.0-or-later
"""Frames between the judge and the process of a submission: a length, and a JSON document.

The judge does not trust the other process. It executes nothing that a frame holds, and it bounds
the length of a frame and the time that reading and writing take.
"""

from __future__ import annotations

import base64
import json
import os
import select
import struct
import time
from typing import Any

import numpy as np

MAX_BYTES = 1 << 23

_LENGTH = struct.Struct(">I")
_ARRAY = "@"
_DTYPES = {"|b1", "|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8"}
_PIPE_BYTES = 4096  # PIPE_BUF: a pipe that select(2) calls writable has room for so many


class WireError(Exception):
    """The other process ended, or sent something that is no frame."""


class TimeoutWireError(WireError):
    """The other process did not answer in time."""


def encode(document: Any) -> bytes:
    """A frame of lists, dictionaries, numbers, texts and arrays."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            raw = base64.b64encode(np.ascontiguousarray(value).tobytes())
            return {_ARRAY: [value.dtype.str, raw.decode()]}
        if isinstance(value, np.generic):
            return value.item()
        raise TypeError(f"{type(value).__name__} does not go into a frame")

    text = json.dumps(document, default=plain, separators=(",", ":")).encode()
    return _LENGTH.pack(len(text)) + text


def decode(text: bytes) -> Any:
    """The document of a frame. WireError if there is none."""

    def restore(value: dict[str, Any]) -> Any:
        if _ARRAY not in value:
            return value
        dtype, raw = value[_ARRAY]
        if dtype not in _DTYPES:
            raise ValueError(f"{dtype!r} is no type of an array")
        return np.frombuffer(base64.b64decode(raw), dtype).copy()

    try:
        return json.loads(text, object_hook=restore)
    except (ValueError, TypeError, OverflowError, MemoryError, RecursionError) as error:
        raise WireError(f"the frame is no document: {error}") from None


class Channel:
    """Frames over two file descriptors. A timeout is for a whole frame."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd, self._write_fd = read_fd, write_fd

    def send(self, document: Any, timeout_s: float | None = None) -> None:
        """Write a frame. WireError if the other process does not read it."""
        left, until_s = memoryview(encode(document)), _deadline(timeout_s)
        while left:
            if not select.select([], [self._write_fd], [], _time_left(until_s))[1]:
                raise TimeoutWireError("the process does not read")
            try:
                left = left[os.write(self._write_fd, left[:_PIPE_BYTES]) :]
            except OSError as error:
                raise WireError(f"the process ended: {error.strerror}") from None

    def receive(self, timeout_s: float | None = None) -> Any:
        """Read a frame. WireError if there is none."""
        until_s = _deadline(timeout_s)
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, until_s))
        if length > MAX_BYTES:
            raise WireError(f"a frame of {length:,} bytes is too long")
        return decode(self._read(length, until_s))

    def _read(self, count: int, until_s: float | None) -> bytes:
        parts = []
        while count:
            if not select.select([self._read_fd], [], [], _time_left(until_s))[0]:
                raise TimeoutWireError("no answer in time")
            try:
                part = os.read(self._read_fd, min(count, 1 << 20))
            except OSError as error:
                raise WireError(f"the process ended: {error.strerror}") from None
            if not part:
                raise WireError("the process ended")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s


def _time_left(until_s: float | None) -> float | None:
    return None if until_s is None else max(until_s - time.monotonic(), 0)
