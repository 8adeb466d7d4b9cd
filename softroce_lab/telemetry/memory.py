# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory that a process has resident, as Linux tells it (proc(5), /proc/PID/status)."""

from __future__ import annotations

import contextlib
from pathlib import Path


def resident_bytes(status: str | None = None) -> int:
    """VmRSS: now; of this process, or of the one whose status file is given."""
    return _bytes("VmRSS", status)


def peak_bytes(status: str | None = None) -> int:
    """VmHWM: the most so far. Unlike getrusage's, it does not count the parent's before a fork."""
    return _bytes("VmHWM", status)


def _bytes(key: str, status: str | None) -> int:
    text = Path("/proc/self/status").read_text() if status is None else status
    (line,) = (each for each in text.splitlines() if each.startswith(f"{key}:"))
    return int(line.split()[1]) << 10  # it is in KiB


def forget_peak() -> None:
    """From now on `peak_bytes` of this process is the most since now."""
    with contextlib.suppress(OSError):  # a kernel without it: then it is the most of all time
        Path("/proc/self/clear_refs").write_text("5")
