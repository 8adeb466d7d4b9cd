# SPDX-License-Identifier: GPL-2.0-or-later
"""How much of a virtual machine's CPU time its hypervisor gave to others."""

from __future__ import annotations

from pathlib import Path

_STAT = Path("/proc/stat")
_STEAL = 7  # user nice system idle iowait irq softirq steal: proc_stat(5), since Linux 2.6.11
_COUNTED = 8  # guest and guest_nice, which follow, are in user and nice already


class StolenTime:
    """Watches from its making on; on a machine of one's own nothing is ever stolen."""

    def __init__(self) -> None:
        self._begun = _ticks()

    def share(self) -> float:
        """Of all CPUs' time since the beginning, 0 to 1."""
        gained = [now - then for now, then in zip(_ticks(), self._begun, strict=True)]
        return gained[_STEAL] / max(sum(gained), 1)


def _ticks() -> list[int]:
    with _STAT.open() as file:
        return [int(field) for field in file.readline().split()[1 : 1 + _COUNTED]]
