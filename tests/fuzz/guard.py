# SPDX-License-Identifier: GPL-2.0-or-later
"""What a parser may do with one input.

An exception is a finding, and so is a library's warning, which a user would get to see, and too
much time or memory.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path

MOST_S = 1.0  # of processor time: the machine may be busy
MOST_GROWTH_KIB = 512 << 10
_OF_DEVELOPERS = (DeprecationWarning, PendingDeprecationWarning, ResourceWarning)


class TooMuchError(Exception):
    """One input took too long, or too much memory."""


def _peak_kib() -> int:
    """Of this program alone; `ru_maxrss` holds that of the one before, too (exec_mmap())."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split(maxsplit=1)[0])


def guarded(one: Callable[[bytes], None], data: bytes) -> None:
    """Let a target have one input; what is no finding is caught there."""
    began_s, before_kib = time.process_time(), _peak_kib()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in _OF_DEVELOPERS:
            warnings.simplefilter("ignore", kind)
        one(data)
    took_s, grew_kib = time.process_time() - began_s, _peak_kib() - before_kib
    if took_s > MOST_S:
        raise TooMuchError(f"{took_s:.1f} s for {len(data)} bytes")
    if grew_kib > MOST_GROWTH_KIB:
        raise TooMuchError(f"{grew_kib >> 10} MiB for {len(data)} bytes")
