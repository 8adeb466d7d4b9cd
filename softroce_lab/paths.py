# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the project's files lie: in the checkout, or beside the modules of an installed wheel."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from softroce_lab.errors import EnvironmentLackError

_PACKAGE = Path(__file__).resolve().parent
_IN_CHECKOUT = (_PACKAGE.parent / "CMakeLists.txt").is_file()

PROJECT_ROOT = _PACKAGE.parent if _IN_CHECKOUT else _PACKAGE / "data"
XDP = PROJECT_ROOT / "xdp"
TOPOLOGIES = PROJECT_ROOT / "netns_topologies"
FAULTS = PROJECT_ROOT / "faults"
WORKLOADS = PROJECT_ROOT / "workloads"
SWEEPS = WORKLOADS / "sweeps"
LABS = Path("/run/softroce_lab")  # a directory for each lab of this machine


_LIVE = "softroce-monitor"  # built wherever all that needs libxdp and libbpf is


def native_program(name: str) -> Path:
    """The native program `name`, for example `softroce-monitor`.

    It lies in `bin/` beside the native module, in a checkout and in a wheel alike. Raises
    EnvironmentLackError where it was never built.
    """
    if (folder := _native_folder()) is not None:
        program = folder / "bin" / name
        if program.is_file():
            return program
        if not (folder / "bin" / _LIVE).is_file():
            raise EnvironmentLackError(
                "the native part of the real clock",
                f"softroce_lab was built for the virtual clock alone: {name} is not there",
                hint="start the lab with ./lab of a checkout, as root; or build it again where "
                "libxdp-dev, libbpf-dev, libelf-dev and pkgconf are installed",
            )
    raise EnvironmentLackError(
        f"the native program {name}", hint="start the lab with ./lab, which builds what is missing"
    )


def need_live() -> None:
    """EnvironmentLackError where the native part was built for the virtual clock alone.

    `_native` has neither `Host` nor traffic there.
    """
    native_program(_LIVE)


def verbs_library() -> Path:
    """libibverbs.so.1 over the soft RNIC. EnvironmentLackError where it was never built."""
    library = Path(sys.prefix) / "lib" / "softroce_lab" / "libibverbs.so.1"
    if library.is_file():
        return library
    raise EnvironmentLackError(
        "the library for programs of verbs",
        f"{library} is not there",
        hint="start the lab with ./lab of a checkout, as root: --verbs makes it build the library",
    )


def _native_folder() -> Path | None:
    module = importlib.util.find_spec("softroce_lab._native")
    return Path(module.origin).parent if module is not None and module.origin is not None else None
