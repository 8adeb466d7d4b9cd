# SPDX-License-Identifier: GPL-2.0-or-later
"""The application's completion queue, and the one behind it at the backup NIC."""

from __future__ import annotations

import collections
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from softroce_lab.transports.shift.states import Path
from softroce_lab.verbs import CQ, WC, Context
from softroce_lab.verbs.device import MAX_CQE

PROBE_ID, FENCE_ID = 0x5348494654000001, 0x5348494654000002
"""Request ids of the lab's own WRITEs of no bytes."""

_ROOM = 64  # entries for what is the lab's own


class Owner(Protocol):
    """The queue pair that a completion is of."""

    qp_num: int

    def finished(self, wr_id: int) -> None:
        """A WRITE of the lab's own succeeded."""


class Owners(dict[int, "weakref.ref[Any]"]):
    """Queue pairs by number, as long as their program has them: a closed one is taken out."""

    def of(self, number: int) -> Any:
        """None: nobody's."""
        found = self.get(number)
        return None if found is None else found()

    def all(self) -> list[Any]:
        """Those that are there."""
        found = [each() for each in self.values()]
        return [each for each in found if each is not None]


class ShadowedQueue:
    """What `CQ.poll` and `CQ.req_notify` of a queue with ShiftQPs come to.

    It is the queue's `shadow` only while one of its QPs is not on the default NIC, or completions
    wait here. Else a poll takes no lock: it notes that it is going on, and `attach` waits for that.
    """

    # What few queues ever change is the class's: a program may make thousands.
    _behind: CQ | None = None
    _armed = False

    def __init__(
        self,
        cq: CQ,
        backup: Context,
        lock: threading.RLock,
        advance: Callable[[], None],
        owners: tuple[Owners, Owners],
    ) -> None:
        """`owners`: by path, of each number of a queue pair."""
        self._cq, self._backup, self._lock, self._advance = cq, backup, lock, advance
        self._owners = owners
        self._busy: set[Owner] = set()  # QPs that are not on the default NIC, or are moving
        self._pending: collections.deque[WC] = collections.deque()

    @property
    def behind(self) -> CQ:
        """The queue at the backup NIC, made when it is first needed."""
        if self._behind is None:
            self._behind = CQ(self._backup, min(self._cq.cqe + _ROOM, MAX_CQE))
            self._cq.adopt(self._behind)
            if self._cq.channel is not None:
                self._behind.native.ring(self._cq.channel.native, self._cq.cookie)
        return self._behind

    def poll(self, num_entries: int) -> tuple[int, list[WC]]:
        """Completions of all QPs, those of each in order."""
        with self._lock:
            self._cq.check_open("Failed to poll CQ")
            self._advance()
            self.collect()
            count = min(max(num_entries, 0), len(self._pending))
            taken = [self._pending.popleft() for _ in range(count)]
            self._detach()
            return count, taken

    def attach(self) -> None:
        """From now on polls come here; those that are going on are over.

        The application may have asked for an event before: it gets one, perhaps of nothing.
        """
        if self._cq.shadow is None:
            self._cq.shadow = self
            self._armed = True
            if self._behind is not None:
                self._behind.native.arm(False)
        while self._cq.polling:
            time.sleep(0)

    def _detach(self) -> None:
        if not self._busy and not self._pending:
            self._cq.shadow = None

    def collect(self) -> None:
        """Take what is in both queues: of a QP that moves, the older path's is the first."""
        for path, cq in ((Path.DEFAULT, self._cq), (Path.BACKUP, self._behind)):
            if cq is None or cq.closed:
                continue
            for native in cq.native.poll_completions(MAX_CQE):
                self._take(native, path)

    def _take(self, native: Any, path: Path) -> None:
        owner = self._owners[path].of(native.qp_num)
        if owner is not None and native.wr_id in (PROBE_ID, FENCE_ID):
            owner.finished(native.wr_id)
            return
        wc = self._cq.completion.of(native)
        if owner is not None:
            wc.qp_num = owner.qp_num
        self.add(wc)

    def add(self, wc: WC) -> None:
        """A completion for the application, behind those before it."""
        self._pending.append(wc)
        self._cq.shadow = self
        if self._armed and self._cq.channel is not None:
            self._armed = False
            self._cq.channel.native.ring(self._cq.cookie)

    def set_busy(self, owner: Owner, busy: bool) -> None:
        """Whether the completions of a QP are to be looked at."""
        if busy:
            self._busy.add(owner)
            self.attach()
        elif owner in self._busy:
            self._busy.discard(owner)
            self.collect()
            self._detach()

    def forget(self, owner: Owner) -> None:
        """It is closed."""
        self._busy.discard(owner)

    def arm(self, solicited_only: bool) -> None:
        """As `CQ.req_notify`; what waits here counts, too."""
        with self._lock:
            if self._behind is not None:
                self._behind.native.arm(solicited_only)
            self._armed = True
            if self._pending and self._cq.channel is not None:
                self._armed = False
                self._cq.channel.native.ring(self._cq.cookie)
