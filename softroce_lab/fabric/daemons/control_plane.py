# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab's routing protocol: leads routes around links while a timeline takes them down.

    python -m softroce_lab.fabric.daemons.control_plane DIRECTORY BPFFS

A lab with such a timeline has this process. It has the timeline, so it converges
within a millisecond or two of a change, sooner than any protocol that has to notice; until then
switches go on sending to the dead link. SIGTERM ends it.
"""

from __future__ import annotations

import functools
import itertools
import os
import signal
import sys
import time
from pathlib import Path

from softroce_lab.fabric import faults
from softroce_lab.fabric.bpf.xdp import XdpFabric
from softroce_lab.fabric.fault_lock import changing
from softroce_lab.fabric.ledger import planfile, process
from softroce_lab.fabric.ledger.ledger import History
from softroce_lab.plan.plan import Plan, Route
from softroce_lab.topology import routing

ROLE = "routes"  # in the ledger
LOG = "routes.log"
_LOOK_S = 0.02  # polling interval for a new plan or a restarted timeline
_REST_S = 0.001  # between two steps, however short the windows of a timeline are
_ROUTINGS = 16  # of as many sets of links that are down, for they come again


def argv(bpffs: Path, directory: Path) -> list[str]:
    return [sys.executable, "-m", __name__, str(directory), str(bpffs)]


def is_alive(history: History) -> bool:
    """Whether the lab with this ledger came up with one, and has it still."""
    entries = (each for each in history.of_kind("process") if each.facts["role"] == ROLE)
    known = (process.recorded(entry) for entry in entries)
    return any(identity is not None and identity.is_alive() for identity in known)


class ControlPlane:
    def __init__(self, directory: Path, bpffs: Path) -> None:
        self._directory = directory
        self._xdp = XdpFabric.open(bpffs)
        self._inode = -1  # of the plan's file
        self._routed: tuple[int, set[int]] | None = None  # epoch, links down
        self._written: tuple[Route, ...] = ()
        self._plan = self._current()

    def step(self, clock_ns: int) -> float:
        """Bring the routes up to date at a moment of CLOCK_MONOTONIC; seconds until the next."""
        epoch_ns = self._xdp.timeline.epoch_ns
        now_ns = max(clock_ns - epoch_ns, 0)
        plan = self._current()
        if (epoch_ns, faults.down_links(plan, now_ns)) != self._routed:
            with changing(self._directory):
                self._route(self._current(), epoch_ns, now_ns)
        turn_ns = faults.next_turn_ns(plan, now_ns)
        left_s = _LOOK_S if turn_ns is None else (turn_ns - now_ns) / 1e9
        return min(_LOOK_S, max(_REST_S, left_s))

    def _route(self, plan: Plan, epoch_ns: int, now_ns: int) -> None:
        """Write the routes that are not as they should be, or all if others wrote some."""
        down = faults.down_links(plan, now_ns)
        if self._routed is None or self._routed[0] != epoch_ns or self._is_unsure():
            self._written = ()
        if faults.downs(plan):
            routes = self._around(frozenset(down))
            written = self._written or itertools.repeat(None)
            changed = [new for new, old in zip(routes, written, strict=False) if new != old]
            self._xdp.set_routes(plan, changed)
            self._written = routes
        self._routed = epoch_ns, down

    def _is_unsure(self) -> bool:
        """Whether a change that may have written routes was broken off."""
        return (self._directory / planfile.NEXT).exists()

    def _current(self) -> Plan:
        inode = os.stat(self._directory / planfile.FILE).st_ino  # noqa: PTH116 - every 20 ms
        if inode != self._inode:
            plan = planfile.read(self._directory)
            self._plan, self._inode = plan, inode
            self._around = functools.lru_cache(_ROUTINGS)(lambda down: routing.around(plan, down))
            self._routed, self._written = None, ()
        return self._plan


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    plane = ControlPlane(Path(sys.argv[1]), Path(sys.argv[2]))
    while True:
        time.sleep(plane.step(time.monotonic_ns()))


if __name__ == "__main__":
    main()
