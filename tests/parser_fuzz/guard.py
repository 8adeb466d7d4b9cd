# SPDX-License-Identifier: GPL-2.0-or-later
"""What a parser may do with one input.

An exception is a finding, and so is a library's warning, which a user would get to see, and too
much time or memory.
"""

from __future__ import annotations

import gc
import itertools
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

MOST_S = 1.0  # of processor time: the machine may be busy
MOST_GROWTH_KIB = 512 << 10
MOST_KEPT_KIB = 4 << 10  # RSS itself comes and goes by one or two MiB
_OF_DEVELOPERS = (DeprecationWarning, PendingDeprecationWarning, ResourceWarning)


class TooMuchError(Exception):
    """One input took too long, or too much memory."""


def _kib(what: str) -> int:
    """Of this program alone; `ru_maxrss` holds that of the one before, too (exec_mmap())."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{what}:")[2].split(maxsplit=1)[0])


def check_kept(one: Callable[[bytes], None], inputs: Sequence[bytes], for_s: float) -> int:
    """Let a target have the same inputs again and again; how many times it had one.

    TooMuchError if memory grows with them. What caches take, they have after a third of the time.
    """
    for data in inputs:
        one(data)
    began_s, sizes_kib, times = time.process_time(), [], 0
    for data in itertools.cycle(inputs):
        one(data)
        times += 1
        if 3 * (time.process_time() - began_s) >= (len(sizes_kib) + 1) * for_s:
            gc.collect()
            sizes_kib.append(_kib("VmRSS"))
            if len(sizes_kib) == 3:
                break
    if (grew_kib := sizes_kib[-1] - sizes_kib[0]) > max(MOST_KEPT_KIB, times // 8):
        raise TooMuchError(f"{grew_kib} KiB more after {times} inputs, most of them had before")
    return times


def guarded(one: Callable[[bytes], None], data: bytes) -> None:
    """Let a target have one input; what is no finding is caught there."""
    began_s, before_kib = time.process_time(), _kib("VmHWM")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in _OF_DEVELOPERS:
            warnings.simplefilter("ignore", kind)
        one(data)
    took_s, grew_kib = time.process_time() - began_s, _kib("VmHWM") - before_kib
    if took_s > MOST_S:
        raise TooMuchError(f"{took_s:.1f} s for {len(data)} bytes")
    if grew_kib > MOST_GROWTH_KIB:
        raise TooMuchError(f"{grew_kib >> 10} MiB for {len(data)} bytes")
