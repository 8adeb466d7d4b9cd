# SPDX-License-Identifier: GPL-2.0-or-later
"""What an application's memory regions and completion queues have at the backup NIC.

The backup's region has the same bytes and the same addresses, so that a request that moves changes
its keys and nothing else.
"""

from __future__ import annotations

import collections
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from softroce_lab import _native
from softroce_lab.transports.shift.protocol import Path
from softroce_lab.verbs import CQ, MR, PD, WC, Context
from softroce_lab.verbs.base import Closable
from softroce_lab.verbs.device import MAX_CQE


class ShadowDomain:
    """What a PD has at the backup: a PD, and a region for each of its regions."""

    def __init__(self, pd: PD, backup: Context, publish: Callable[[int, int], None]) -> None:
        self.pd = PD(backup)
        self.lkeys: dict[int, int] = {}  # default -> backup
        self.back: dict[int, int] = {}  # backup -> default
        self._publish = publish
        self._shadows: list[MR] = []  # parents do not hold their children
        for child in pd.children():
            self._shadow(child)
        pd.on_region = self._shadow

    def _shadow(self, region: Closable) -> None:
        if not isinstance(region, MR):
            return
        shadow = MR(self.pd, region.array, region.access, iova=region.iova)
        region.adopt(shadow)  # it is closed first
        self.lkeys[region.lkey] = shadow.lkey
        self.back[shadow.lkey] = region.lkey
        self._shadows.append(shadow)
        self._publish(region.rkey, shadow.rkey)


class UnknownKeyError(KeyError):
    """A key that has no counterpart on the other NIC; the argument names it."""


def moved_send(request: Any, lkeys: Mapping[int, int], rkeys: Mapping[int, int]) -> Any:
    """A copy of a request with the other NIC's keys; UnknownKeyError, if the peer's has none."""
    copy = _native.SendRequest()
    copy.assign(request)
    copy.sources = _moved(request.sources, lkeys)
    if request.opcode in _REMOTE and _touches_memory(request):
        if request.rkey not in rkeys:
            raise UnknownKeyError(
                f"the peer's key {request.rkey:#x} has no counterpart that is known"
            )
        copy.rkey = rkeys[request.rkey]
    return copy


def moved_receive(receive: Any, lkeys: Mapping[int, int]) -> Any:
    """A copy of a receive with the other NIC's keys."""
    copy = _native.ReceiveRequest()
    copy.assign(receive)
    copy.targets = _moved(receive.targets, lkeys)
    return copy


_REMOTE = {0, 1, 4, 5, 6}  # WRITE, with immediate; READ; the atomics
_INLINE = 8
_NO_KEY = 0  # of no region: what names none ends in a protection error, as on the default NIC


def _touches_memory(request: Any) -> bool:
    """Of a WRITE of no bytes the key is not looked at (C9-88)."""
    return bool(request.send_flags & _INLINE) or any(each.length for each in request.sources)


def _moved(elements: Any, lkeys: Mapping[int, int]) -> list[Any]:
    return [
        _native.ScatterGather(each.addr, each.length, lkeys.get(each.lkey, _NO_KEY))
        for each in elements
    ]


PROBE_ID, FENCE_ID = 0x5348494654000001, 0x5348494654000002
"""Request ids of the lab's own WRITEs of no bytes."""

_ROOM = 64  # entries for what is the lab's own


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
        self._busy: set[Any] = set()  # QPs that are not on the default NIC, or are moving
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

    def set_busy(self, owner: Any, busy: bool) -> None:
        """Whether the completions of a QP are to be looked at."""
        if busy:
            self._busy.add(owner)
            self.attach()
        elif owner in self._busy:
            self._busy.discard(owner)
            self.collect()
            self._detach()

    def forget(self, owner: Any) -> None:
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
