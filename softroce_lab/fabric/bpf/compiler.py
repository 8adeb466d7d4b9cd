# SPDX-License-Identifier: GPL-2.0-or-later
"""Compiles XDP programs with bcc, on hosts without kernel headers too, and loads them.

bcc requires a kernel source tree, but XDP code needs UAPI headers only. So it gets xdp/kernel, a
tree of six small files, and the system's UAPI headers (Debian's linux-libc-dev) for the rest.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sysconfig
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from softroce_lab.errors import EnvironmentLackError, LabError
from softroce_lab.fabric.bpf import cache, libbpf
from softroce_lab.fabric.bpf.image import Image, Loaded, MapShape, Program
from softroce_lab.paths import XDP

_UAPI = Path("/usr/include")

# Map flags that the kernel sets by itself, by kind, and would not take back: BPF_F_RDONLY_PROG of
# a device map (kernel/bpf/devmap.c).
_OF_THE_KERNEL = {14: 1 << 7, 25: 1 << 7}

_TREE = XDP / "kernel"

# bcc reads the tree's place from the environment and changes the working directory to it: both
# belong to the whole process.
_COMPILING = threading.Lock()


@contextlib.contextmanager
def _kernel_tree() -> Iterator[None]:
    variable = "BCC_KERNEL_SOURCE"
    with _COMPILING:
        before = os.environ.get(variable)
        os.environ[variable] = str(_TREE)
        try:
            yield
        finally:
            del os.environ[variable]
            if before is not None:
                os.environ[variable] = before


def _include_folders() -> list[Path]:
    multiarch = sysconfig.get_config_var("MULTIARCH")
    return [XDP, *([_UAPI / multiarch] if multiarch else []), _UAPI]


def _bcc() -> Any:
    """The module, which carries no types."""
    try:
        bcc = importlib.import_module("bcc")
    except ImportError as error:
        raise EnvironmentLackError(
            "bcc for the system's Python", hint="apt install python3-bpfcc"
        ) from error
    if not (_UAPI / "linux/if_ether.h").is_file():
        raise EnvironmentLackError(
            "the kernel's user-space headers", hint="apt install linux-libc-dev"
        )
    return bcc


def compile_image(
    source: str, programs: Sequence[str], parameters: Mapping[str, int | str]
) -> Image:
    """Compile xdp/`source` with `parameters` as macros. EnvironmentLackError, LabError."""
    bcc = _bcc()
    flags = [f"-I{folder}" for folder in _include_folders()]
    flags += [f"-DPAGE_SIZE={os.sysconf('SC_PAGE_SIZE')}"]
    flags += [f"-D{name}={value}" for name, value in parameters.items()]
    try:
        with _kernel_tree():
            compiled = bcc.BPF(src_file=os.fsencode(XDP / source), cflags=flags, allow_rlimit=False)
    except Exception as error:  # bcc raises nothing more exact
        raise LabError(
            f"xdp/{source} does not compile: {error}", hint="the compiler's words are above"
        ) from error
    try:
        return _image(bcc.lib, compiled.module, programs)
    finally:
        compiled.cleanup()


def _image(lib: Any, module: int, programs: Sequence[str]) -> Image:
    """Take what bcc compiled; it has made the maps already."""
    lib.bpf_num_tables.argtypes = [ctypes.c_void_p]
    lib.bpf_num_tables.restype = ctypes.c_size_t
    lib.bpf_table_name.argtypes = lib.bpf_table_fd_id.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    lib.bpf_table_name.restype = ctypes.c_char_p
    maps = {
        lib.bpf_table_fd_id(module, number): lib.bpf_table_name(module, number).decode()
        for number in range(lib.bpf_num_tables(module))
    }
    return Image(
        tuple(_shape(fd, name) for fd, name in maps.items()),
        tuple(Program.of(name, _code(lib, module, name), maps) for name in programs),
    )


def _shape(fd: int, name: str) -> MapShape:
    info = libbpf.MapInfo.of(fd)
    own = _OF_THE_KERNEL.get(info.kind, 0)
    return MapShape(info.kind, name, info.key, info.value, info.entries, info.flags & ~own)


def _code(lib: Any, module: int, name: str) -> bytes:
    start = lib.bpf_function_start(module, name.encode())
    if not start:
        raise LabError(f"no program is called {name}")
    return ctypes.string_at(start, lib.bpf_function_size(module, name.encode()))


class Module(Loaded):
    """The programs and maps of one source file, loaded; a context manager.

    Compiled now, or when they were needed last.
    """

    def __init__(
        self,
        source: str,
        programs: Sequence[str],
        parameters: Mapping[str, int | str],
        entries: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Take xdp/`source` with `parameters` as macros; let these maps have that many `entries`.

        LabError if the kernel rejects it.
        """
        key = cache.key(source, programs, parameters)
        image = cache.recall(key)
        if image is None:
            image = compile_image(source, programs, parameters)
            cache.keep(key, image)
        try:
            super().__init__(image.sized(entries))
        except OSError as error:
            raise LabError(
                f"xdp/{source} does not load: {error}",
                hint="`lab doctor` shows what the kernel can do",
            ) from error
