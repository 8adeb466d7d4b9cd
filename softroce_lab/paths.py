# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the project's files lie: in the checkout, or beside the modules of an installed wheel."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from softroce_lab.errors import EnvironmentLackError

_PACKAGE = Path(__file__).resolve().parent
_IN_CHECKOUT = (_PACKAGE.parent / "CMakeLists.txt").is_file()

PROJECT_ROOT = _PACKAGE.parent if _IN_CHECKOUT else _PACKAGE / "data"
XDP = PROJECT_ROOT / "xdp"
TOPOLOGIES = PROJECT_ROOT / "netns_topologies"
FAULTS = PROJECT_ROOT / "faults"


def native_program(name: str) -> Path:
    """The native program `name`, for example `softroce-monitor`.

    It lies in `bin/` beside the native module, in a checkout and in a wheel alike. Raises
    EnvironmentLackError where it was never built.
    """
    module = importlib.util.find_spec("softroce_lab._native")
    if module is not None and module.origin is not None:
        program = Path(module.origin).parent / "bin" / name
        if program.is_file():
            return program
    raise EnvironmentLackError(
        f"the native program {name}", hint="start the lab with ./lab, which builds what is missing"
    )
