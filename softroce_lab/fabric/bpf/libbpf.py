# SPDX-License-Identifier: GPL-2.0-or-later
"""The few calls of libbpf that pinned maps and programs need.

libbpf is there wherever bcc is, and knows the system call's number and layout on each machine.
Every call raises OSError with the kernel's errno.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import functools
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, Self

from softroce_lab.errors import EnvironmentLackError

MAP_TYPE_XSKMAP, MAP_TYPE_RINGBUF = 17, 27
_PER_CPU_TYPES = (5, 6, 10)  # enum bpf_map_type: per-CPU hash, array, LRU hash
_PROG_TYPE_XDP = 6
_INSTRUCTION_BYTES = 8
_PASS = bytes.fromhex("b7000000 02000000 95000000 00000000")  # return XDP_PASS
_NAME_BYTES = 15
_LOG_BYTES = 1 << 20
_LOG_LINES = 3
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
    """Give a map or program a name in a bpffs; it exists until that is unlinked or unmounted."""
    _checked(_libbpf().bpf_obj_pin(fd, os.fsencode(path)), str(path))


def opened(path: Path) -> int:
    return _checked(_libbpf().bpf_obj_get(os.fsencode(path)), str(path))


def attach_xdp(ifindex: int, program: int, flags: int) -> None:
    """Let `program` run on an interface of the caller's network namespace (XDP_FLAGS_*).

    It takes the place of a program that is attached in the same mode.
    """
    _checked(_libbpf().bpf_xdp_attach(ifindex, program, flags, None), f"interface {ifindex}")


def attached_xdp(ifindex: int, flags: int) -> int:
    """The id of the program on an interface of the caller's namespace in this mode; 0: none."""
    number = ctypes.c_uint32()
    result = _libbpf().bpf_xdp_query_id(ifindex, flags, ctypes.byref(number))
    _checked(result, f"interface {ifindex}")
    return number.value


class _MapCreateOptions(ctypes.Structure):
    """The head of struct bpf_map_create_opts; `size` is its length."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        *((name, ctypes.c_uint32) for name in ("btf", "btf_key", "btf_value", "btf_vmlinux")),
        *((name, ctypes.c_uint32) for name in ("inner_map", "flags")),
    ]


def create_map(
    kind: int,
    name: str,
    key_bytes: int,
    value_bytes: int,
    max_entries: int,
    flags: int,
    inner_map: int = 0,
) -> int:
    """A descriptor of a new map, of a kind of enum bpf_map_type.

    `inner_map` is a descriptor of what a map of maps is to hold.
    """
    options = _MapCreateOptions(
        size=ctypes.sizeof(_MapCreateOptions), flags=flags, inner_map=inner_map
    )
    sizes = (key_bytes, value_bytes, max_entries)
    result = _libbpf().bpf_map_create(
        kind, name.encode()[:_NAME_BYTES], *sizes, ctypes.byref(options)
    )
    return _checked(result, f"map {name}")


class _LoadOptions(ctypes.Structure):
    """struct bpf_prog_load_opts up to the log; `size` is its length."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        *((name, ctypes.c_uint32) for name in ("attempts", "type", "btf", "flags", "ifindex")),
        *((name, ctypes.c_uint32) for name in ("version", "target_btf", "target", "target_object")),
        ("descriptors", ctypes.c_void_p),
        ("functions", ctypes.c_void_p),
        *((name, ctypes.c_uint32) for name in ("function_count", "function_size")),
        ("lines", ctypes.c_void_p),
        *((name, ctypes.c_uint32) for name in ("line_count", "line_size")),
        *((name, ctypes.c_uint32) for name in ("log_level", "log_size")),
        ("log", ctypes.c_void_p),
    ]


def load_xdp(name: str, instructions: bytes) -> int:
    """A descriptor of a new XDP program. The OSError of a refusal ends in the verifier's words."""
    log = ctypes.create_string_buffer(_LOG_BYTES)  # log level 0: filled only after a refusal
    options = _LoadOptions(
        size=ctypes.sizeof(_LoadOptions), log_size=len(log), log=ctypes.addressof(log)
    )
    count = ctypes.c_size_t(len(instructions) // _INSTRUCTION_BYTES)
    result = _libbpf().bpf_prog_load(
        _PROG_TYPE_XDP,
        name.encode()[:_NAME_BYTES],
        b"GPL",
        instructions,
        count,
        ctypes.byref(options),
    )
    words = log.value.decode("utf-8", "replace").splitlines()[-_LOG_LINES:]
    return _checked(result, " / ".join([f"program {name}", *words]))


@contextlib.contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def probe_program() -> contextlib.AbstractContextManager[int]:
    """A descriptor of an XDP program that passes every frame, the smallest there is."""
    return _closing(load_xdp("probe", _PASS))


def probe_map(
    kind: int, key_bytes: int, value_bytes: int, entries: int, inner_map: int = 0
) -> contextlib.AbstractContextManager[int]:
    return _closing(create_map(kind, "probe", key_bytes, value_bytes, entries, 0, inner_map))


def probe_ring_buffer() -> contextlib.AbstractContextManager[int]:
    return probe_map(MAP_TYPE_RINGBUF, 0, 0, os.sysconf("SC_PAGE_SIZE"))


def living(kind: Literal["prog", "map"], numbers: Iterable[int]) -> set[int]:
    """Which of these program or map ids the kernel still has; none is touched."""
    following = getattr(_libbpf(), f"bpf_{kind}_get_next_id")
    found = set()
    for number in numbers:
        after = ctypes.c_uint32()
        if following(number - 1, ctypes.byref(after)) == 0 and after.value == number:
            found.add(number)
    return found


def wait_for_programs() -> None:
    """Return when every program that runs now has ended, some milliseconds.

    An update of a map of maps guarantees that (bpf(2) in the kernel: maybe_wait_bpf_programs);
    membarrier(2) would too, but not on kernels with nohz_full.
    """
    array, array_of_maps = 2, 12
    with probe_map(array, 4, 4, 1) as inner, probe_map(array_of_maps, 4, 4, 1, inner) as outer:
        Map(outer, "map of maps", 4, 1).put(bytes(4), inner.to_bytes(4, sys.byteorder))


@functools.cache
def possible_cpus() -> int:
    """Copies that the kernel keeps of a per-CPU value."""
    last = _POSSIBLE_CPUS.read_text("ascii").strip().replace(",", "-").rpartition("-")[2]
    return int(last) + 1


class MapInfo(ctypes.Structure):
    """The head of struct bpf_map_info."""

    _fields_ = [
        (name, ctypes.c_uint32) for name in ("kind", "id", "key", "value", "entries", "flags")
    ]

    @classmethod
    def of(cls, fd: int) -> Self:
        info = cls()
        size = ctypes.c_uint32(ctypes.sizeof(info))
        call = _libbpf().bpf_obj_get_info_by_fd
        _checked(call(fd, ctypes.byref(info), ctypes.byref(size)), "map")
        return info


@dataclasses.dataclass(frozen=True, slots=True)
class Map:
    """A map; it owns its descriptor."""

    fd: int
    name: str
    value_bytes: int  # of a whole value; of a per-CPU map: of the copies of all CPUs together
    max_entries: int
    key_bytes: int = 4

    @classmethod
    def pinned(cls, path: Path) -> Map:
        """The map pinned at `path`. FileNotFoundError if there is none."""
        fd = opened(path)
        info = MapInfo.of(fd)
        value = int(info.value)
        if info.kind in _PER_CPU_TYPES:
            value = (value + 7) // 8 * 8 * possible_cpus()
        return cls(fd, path.name, value, int(info.entries), int(info.key))

    def close(self) -> None:
        """Close the descriptor; the pin keeps the map."""
        os.close(self.fd)

    def get(self, key: bytes) -> bytes | None:
        value = ctypes.create_string_buffer(self.value_bytes)
        result = _libbpf().bpf_map_lookup_elem(self.fd, key, value)
        if result == -errno.ENOENT:
            return None
        _checked(result, self.name)
        return value.raw

    def all_keys(self) -> list[bytes]:
        """All keys; those that come and go meanwhile may be missing or twice."""
        found: list[bytes] = []
        key = ctypes.create_string_buffer(self.key_bytes)
        before: object = None
        while True:
            result = _libbpf().bpf_map_get_next_key(self.fd, before, key)
            if result == -errno.ENOENT or len(found) > 2 * self.max_entries:
                return found
            _checked(result, self.name)
            found.append(key.raw)
            before = ctypes.create_string_buffer(key.raw, self.key_bytes)

    def delete(self, key: bytes) -> None:
        """Remove the key; nothing happens if it is not there."""
        result = _libbpf().bpf_map_delete_elem(self.fd, key)
        if result != -errno.ENOENT:
            _checked(result, self.name)

    def put(self, key: bytes, value: bytes) -> None:
        if len(value) != self.value_bytes:
            raise ValueError(f"{self.name}: {len(value)} bytes for a value of {self.value_bytes}")
        _checked(_libbpf().bpf_map_update_elem(self.fd, key, value, ctypes.c_uint64(0)), self.name)
