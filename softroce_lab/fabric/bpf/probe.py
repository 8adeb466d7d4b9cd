# SPDX-License-Identifier: GPL-2.0-or-later
"""The smallest BPF program and the smallest maps, to learn what the kernel takes."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator

from softroce_lab.errors import EnvironmentLackError

# linux/bpf.h
PROG_TYPE_XDP = 6
MAP_TYPE_XSKMAP = 17
MAP_TYPE_RINGBUF = 27

_R0_BECOMES_XDP_PASS = bytes.fromhex("b7000000 02000000")
_EXIT = bytes.fromhex("95000000 00000000")
_INSTRUCTION_BYTES = 8


@functools.cache
def _libbpf() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libbpf.so.1")
    except OSError as error:
        raise EnvironmentLackError("libbpf", hint="apt install libbpf1") from error


@contextlib.contextmanager
def _owned(result: int) -> Iterator[int]:
    """The descriptor that libbpf returned, closed on leaving; OSError if it is -errno."""
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    try:
        yield result
    finally:
        os.close(result)


def program() -> contextlib.AbstractContextManager[int]:
    """An XDP program that passes every frame."""
    code = _R0_BECOMES_XDP_PASS + _EXIT
    count = ctypes.c_size_t(len(code) // _INSTRUCTION_BYTES)
    return _owned(_libbpf().bpf_prog_load(PROG_TYPE_XDP, None, b"GPL", code, count, None))


def table(
    kind: int, key_bytes: int, value_bytes: int, entries: int
) -> contextlib.AbstractContextManager[int]:
    """A map without a name."""
    result = _libbpf().bpf_map_create(kind, None, key_bytes, value_bytes, entries, None)
    return _owned(result)
