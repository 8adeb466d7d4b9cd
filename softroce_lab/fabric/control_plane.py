# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab's routing protocol: leads routes around links while a timeline takes them down.

    python -m softroce_lab.fabric.control_plane DIRECTORY BPFFS

A process of its own that a lab with such a timeline has. It knows the timeline, so it converges
within a millisecond or two of a change, sooner than any protocol that has to notice; until then
switches go on sending to the dead link. SIGTERM ends it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from softroce_lab.fabric import faults, planfile
from softroce_lab.fabric.faults import FaultControl
from softroce_lab.fabric.xdp import XdpFabric
from softroce_lab.topology.plan import Plan

LOG = "routes.log"
_LOOK_S = 0.02  # how soon it sees another plan, or that the timeline began again


def argv(bpffs: Path, directory: Path) -> list[str]:
    """The command that runs it for a lab."""
    return [sys.executable, "-m", __name__, str(directory), str(bpffs)]


@contextlib.contextmanager
def _no_namespace(node: str) -> Iterator[int]:
    raise RuntimeError(f"routes do not need the namespace of {node}")
    yield -1


class ControlPlane:
    """Follows one lab."""

    def __init__(self, directory: Path, bpffs: Path) -> None:
        self._directory = directory
        self._xdp = XdpFabric.open(bpffs)
        self._control = FaultControl(directory, self._xdp, _no_namespace)
        self._plan_inode = -1
        self._plan: Plan | None = None
        self._routed: tuple[int, frozenset[int]] | None = None  # plan, links down

    def step(self, clock_ns: int) -> float:
        """Bring the routes up to date at a moment of CLOCK_MONOTONIC; seconds until the next."""
        now_ns = max(clock_ns - self._xdp.timeline.epoch_ns, 0)
        plan = self._current()
        down = (self._plan_inode, frozenset(faults.down_links(plan, now_ns)))
        if down != self._routed:
            with faults.changing(self._directory):
                self._control.reroute(self._current(), now_ns)
            self._routed = down
        turn_ns = faults.next_turn_ns(plan, now_ns)
        return _LOOK_S if turn_ns is None else min(_LOOK_S, (turn_ns - now_ns) / 1e9)

    def _current(self) -> Plan:
        inode = os.stat(self._directory / planfile.FILE).st_ino  # noqa: PTH116 - every 20 ms
        if self._plan is None or inode != self._plan_inode:
            self._plan, self._plan_inode = planfile.read(self._directory), inode
        return self._plan


def main() -> None:
    """Follow the lab until SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    plane = ControlPlane(Path(sys.argv[1]), Path(sys.argv[2]))
    while True:
        time.sleep(max(plane.step(time.monotonic_ns()), 0))


if __name__ == "__main__":
    main()
