# SPDX-License-Identifier: GPL-2.0-or-later
"""Frames between the judge and the process of a submission.

A frame is a JSON document and the bytes of its arrays. The judge reads frames of a process that it
does not trust: nothing in a frame is executed, and every length has a bound.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from typing import Any

import numpy as np

MOST_JSON_BYTES = 1 << 22
MOST_ARRAY_BYTES = 1 << 24

_HEAD = struct.Struct(">II")  # bytes of JSON, bytes of arrays
_ARRAY = "@"
_DTYPES = {"|b1", "|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8"}


class WireError(Exception):
    """The other process ended, or sent what is no frame."""


class SilentError(WireError):
    """Nothing came in time."""


def encode(document: Any) -> bytes:
    """A frame of lists, dictionaries, numbers, texts and arrays."""
    arrays: list[bytes] = []
    sizes = [0]

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            raw = np.ascontiguousarray(value).tobytes()
            arrays.append(raw)
            sizes[0] += len(raw)
            return {_ARRAY: [value.dtype.str, sizes[0] - len(raw), len(value)]}
        if isinstance(value, np.generic):
            return value.item()
        raise TypeError(f"{type(value).__name__} does not go into a frame")

    text = json.dumps(document, default=plain, separators=(",", ":")).encode()
    return b"".join((_HEAD.pack(len(text), sizes[0]), text, *arrays))


def decode(text: bytes, arrays: bytes) -> Any:
    """What a frame holds. WireError if it is none."""

    def revived(found: dict[str, Any]) -> Any:
        if _ARRAY not in found:
            return found
        dtype, offset, count = found[_ARRAY]
        if dtype not in _DTYPES or not (isinstance(offset, int) and isinstance(count, int)):
            raise ValueError("an array of another kind")
        if offset < 0 or count < 0:
            raise ValueError("an array before the beginning")
        return np.frombuffer(arrays, np.dtype(dtype), count, offset)

    try:
        return json.loads(text, object_hook=revived)
    except (ValueError, TypeError, OverflowError, MemoryError, RecursionError) as error:
        raise WireError(f"a frame that is none: {error}") from None


class Channel:
    """Two file descriptors. `timeout_s` of a read is for the whole frame."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd, self._write_fd = read_fd, write_fd

    def send(self, document: Any) -> None:
        """Write a frame. WireError if nobody reads any more."""
        left = memoryview(encode(document))
        try:
            while left:
                left = left[os.write(self._write_fd, left) :]
        except OSError as error:
            raise WireError(f"the process ended: {error.strerror}") from None

    def receive(self, timeout_s: float | None = None) -> Any:
        """Read a frame. WireError if there is none."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        text_bytes, array_bytes = _HEAD.unpack(self._exactly(_HEAD.size, until_s))
        if text_bytes > MOST_JSON_BYTES or array_bytes > MOST_ARRAY_BYTES:
            raise WireError("a frame that is too long")
        text = self._exactly(text_bytes, until_s)
        return decode(text, self._exactly(array_bytes, until_s))

    def _exactly(self, count: int, until_s: float | None) -> bytes:
        parts, left = [], count
        while left:
            if until_s is not None:
                wait_s = max(until_s - time.monotonic(), 0)
                if not select.select([self._read_fd], [], [], wait_s)[0]:
                    raise SilentError("no answer in time")
            try:
                part = os.read(self._read_fd, min(left, 1 << 20))
            except OSError as error:
                raise WireError(f"the process ended: {error.strerror}") from None
            if not part:
                raise WireError("the process ended")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
