# SPDX-License-Identifier: GPL-2.0-or-later
"""How much memory the machine has left."""

from __future__ import annotations

from pathlib import Path


def available_bytes() -> int:
    """Memory that the kernel can give away without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0
