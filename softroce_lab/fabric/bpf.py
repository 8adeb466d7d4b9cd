# SPDX-License-Identifier: GPL-2.0-or-later
"""The few calls of libbpf that pinned maps and programs need.

libbpf is there wherever bcc is, and knows the system call's number and layout on each machine.
Every call raises OSError with the kernel's errno.
"""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import functools
import os
import sys
from pathlib import Path

from softroce_lab.errors import EnvironmentLackError

_PER_CPU_TYPES = (5, 6, 10)  # enum bpf_map_type: per-CPU hash, array, LRU hash
_POSSIBLE_CPUS = Path("/sys/devices/system/cpu/possible")


@functools.cache
def _libbpf() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libbpf.so.1")
    except OSError as error:
        raise EnvironmentLackError("libbpf", hint="apt install libbpf1") from error


def _checked(result: int, what: str) -> int:
    if result < 0:
        raise OSError(-result, os.strerror(-result), what)
    return result


def pin(fd: int, path: Path) -> None:
    """Give a map or program a name in a bpffs; it lives until that is unlinked or unmounted."""
    _checked(_libbpf().bpf_obj_pin(fd, os.fsencode(path)), str(path))


def opened(path: Path) -> int:
    """A new descriptor of the map or program pinned at `path`."""
    return _checked(_libbpf().bpf_obj_get(os.fsencode(path)), str(path))


def attach_xdp(ifindex: int, program: int, flags: int) -> None:
    """Let `program` run on an interface of the caller's network namespace (XDP_FLAGS_*).

    It takes the place of a program that is attached in the same mode.
    """
    _checked(_libbpf().bpf_xdp_attach(ifindex, program, flags, None), f"interface {ifindex}")


class _MapCreateOptions(ctypes.Structure):
    """The head of struct bpf_map_create_opts; `size` says how much of it there is."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        *((name, ctypes.c_uint32) for name in ("btf", "btf_key", "btf_value", "btf_vmlinux")),
        ("inner_map", ctypes.c_uint32),
    ]


def _create(kind: int, options: _MapCreateOptions | None) -> int:
    """A descriptor of a new unnamed map of one u32, by enum bpf_map_type."""
    pointer = ctypes.byref(options) if options else None
    return _checked(_libbpf().bpf_map_create(kind, None, 4, 4, 1, pointer), "map")


def wait_for_programs() -> None:
    """Return when every program that runs now has ended, some milliseconds.

    An update of a map of maps promises that (bpf(2) in the kernel: maybe_wait_bpf_programs);
    membarrier(2) would too, but not on kernels with nohz_full.
    """
    array, array_of_maps = 2, 12
    inner = _create(array, None)
    try:
        options = _MapCreateOptions(size=ctypes.sizeof(_MapCreateOptions), inner_map=inner)
        outer = Map(_create(array_of_maps, options), "map of maps", 4, 1)
        try:
            outer.put(bytes(4), inner.to_bytes(4, sys.byteorder))
        finally:
            outer.close()
    finally:
        os.close(inner)


@functools.cache
def possible_cpus() -> int:
    """Copies that the kernel keeps of a per-CPU value."""
    last = _POSSIBLE_CPUS.read_text("ascii").strip().replace(",", "-").rpartition("-")[2]
    return int(last) + 1


class _MapInfo(ctypes.Structure):
    """The head of struct bpf_map_info."""

    _fields_ = [(name, ctypes.c_uint32) for name in ("kind", "id", "key", "value", "entries")]


@dataclasses.dataclass(frozen=True, slots=True)
class Map:
    """A map; it owns its descriptor."""

    fd: int
    name: str
    value_bytes: int  # of a whole value; of a per-CPU map: of the copies of all CPUs together
    max_entries: int

    @classmethod
    def pinned(cls, path: Path) -> Map:
        """The map pinned at `path`. FileNotFoundError if there is none."""
        fd = opened(path)
        info = _MapInfo()
        size = ctypes.c_uint32(ctypes.sizeof(info))
        _checked(_libbpf().bpf_obj_get_info_by_fd(fd, ctypes.byref(info), ctypes.byref(size)), "")
        value = int(info.value)
        if info.kind in _PER_CPU_TYPES:
            value = (value + 7) // 8 * 8 * possible_cpus()
        return cls(fd, path.name, value, int(info.entries))

    def close(self) -> None:
        """Close the descriptor; the pin keeps the map."""
        os.close(self.fd)

    def get(self, key: bytes) -> bytes | None:
        """The value under `key`, or None."""
        value = ctypes.create_string_buffer(self.value_bytes)
        result = _libbpf().bpf_map_lookup_elem(self.fd, key, value)
        if result == -errno.ENOENT:
            return None
        _checked(result, self.name)
        return value.raw

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value under `key`, made or replaced."""
        if len(value) != self.value_bytes:
            raise ValueError(f"{self.name}: {len(value)} bytes for a value of {self.value_bytes}")
        _checked(_libbpf().bpf_map_update_elem(self.fd, key, value, ctypes.c_uint64(0)), self.name)
