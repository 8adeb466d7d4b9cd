# SPDX-License-Identifier: GPL-2.0-or-later
"""Compiles and loads XDP programs with bcc, on hosts without kernel headers too.

bcc asks for a kernel source tree, but XDP code needs UAPI headers only. So it gets xdp/kernel, a
tree of six small files, and the system's UAPI headers (Debian's linux-libc-dev) for the rest.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sysconfig
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from softroce_lab.errors import EnvironmentLackError, LabError
from softroce_lab.fabric import bpf
from softroce_lab.paths import XDP

_UAPI = Path("/usr/include")

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


class Module:
    """One compiled source file, with its programs loaded; a context manager.

    What is pinned outlives it.
    """

    def __init__(
        self, source: str, programs: Sequence[str], parameters: Mapping[str, int | str]
    ) -> None:
        """Compile xdp/`source` with `parameters` as macros. LabError if the kernel refuses it."""
        bcc = _bcc()
        self._lib = bcc.lib
        flags = [f"-I{folder}" for folder in _include_folders()]
        flags += [f"-DPAGE_SIZE={os.sysconf('SC_PAGE_SIZE')}"]
        flags += [f"-D{name}={value}" for name, value in parameters.items()]
        try:
            with _kernel_tree():
                self._bpf = bcc.BPF(
                    src_file=os.fsencode(XDP / source), cflags=flags, allow_rlimit=False
                )
            self._programs = {
                name: self._bpf.load_func(name.encode(), bcc.BPF.XDP).fd for name in programs
            }
        except Exception as error:  # bcc raises nothing more exact
            raise LabError(
                f"xdp/{source} does not compile or load: {error}",
                hint="`lab doctor` shows what the kernel can do; the log above says more",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bpf.cleanup()

    def pin(self, bpffs: Path, maps: Sequence[str]) -> None:
        """Pin the programs and these maps in `bpffs` under their names."""
        for name in maps:
            bpf.pin(self._lib.bpf_table_fd(self._bpf.module, name.encode()), bpffs / name)
        for name, fd in self._programs.items():
            bpf.pin(fd, bpffs / name)
