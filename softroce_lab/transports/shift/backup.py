# SPDX-License-Identifier: GPL-2.0-or-later
"""What the ShiftQPs of one NIC share: the other NIC, the key-value service, what drives them."""

from __future__ import annotations

import collections
import contextlib
import os
import select
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from softroce_lab.telemetry.published_transitions import Publisher
from softroce_lab.transports.shift.protocol import Event, Path, Settings
from softroce_lab.transports.shift.shadows import Owners, ShadowDomain, ShadowedQueue
from softroce_lab.transports.shift.store import Store, StoreUnreachableError
from softroce_lab.verbs import CQ, PD, CompChannel, Context, PyverbsUserError
from softroce_lab.verbs.base import expect
from softroce_lab.verbs.device import MAX_CQE
from softroce_lab.verbs.pyverbs_error import PyverbsError

_CONTROL_CQE = 1 << 16
_PATHS = tuple(Path)  # to go through an enumeration takes longer than to find a queue empty


class Backup:
    """Another NIC for the QPs of `context`, and how their peers' backups are found.

    `advance` does what is due. A `Pump` calls it on the real clock; on a clock that a program moves
    the program does. With `in_background`, what a new QP needs at the backup is made by `advance`,
    not by its constructor.

    PyverbsUserError: both contexts are of one NIC, or their path MTUs differ.
    """

    def __init__(
        self,
        context: Context,
        other: Context,
        store: Store,
        settings: Settings | None = None,
        *,
        in_background: bool = False,
    ) -> None:
        expect("context", context, Context)
        expect("other", other, Context)
        _check(context, other)
        self.context, self.other, self.store = context, other, store
        self.settings = settings or Settings()
        self.in_background = in_background
        self.lock = threading.RLock()
        self.gid = context.query_gid(1, 0).gid
        self.events: list[Event] = []
        self.on_event: Callable[[Event], None] = self.events.append
        self._publisher: Publisher | None = None
        if context.statistics:
            self._publisher = Publisher(context.statistics)
            context.when_closed.append(self._publisher.close)
        self.channel = CompChannel(context)
        self.failures = CQ(context, MAX_CQE, channel=self.channel)
        self.twin_failures = CQ(other, MAX_CQE)
        self.twin_failures.native.ring(self.channel.native, self.twin_failures.cookie)
        self.control_pd = PD(other)
        self.control_cq = CQ(other, _CONTROL_CQE)
        self.control_cq.native.ring(self.channel.native, self.control_cq.cookie)
        self._domains: weakref.WeakKeyDictionary[PD, ShadowDomain] = weakref.WeakKeyDictionary()
        self._queues: dict[CQ, ShadowedQueue] = {}
        self._rkeys: dict[str, dict[int, int]] = {}  # of the NIC with a GID: default -> backup
        self._unpublished: dict[str, Any] = {}
        self._tasks: collections.deque[Callable[[], bool]] = collections.deque()
        # By path and number. A QP that its program forgets is closed, as every QP is.
        self._by_number = (Owners(), Owners())
        self._by_control = Owners()
        self._put_back: list[list[tuple[Any, Any]]] = [[], []]
        self._active: set[Any] = set()  # QPs whose machine is not plain
        self._advancing = False

    @property
    def now_ns(self) -> int:
        """The clock of the default NIC."""
        return int(self.context.endpoint.now_ns)

    def note(self, event: Event) -> None:
        """A transition: for the program, and for `lab inspect node`."""
        self.on_event(event)
        if self._publisher is not None:
            self._publisher.add(event.row())

    # ---------------------------------------------------------------- what the QPs share

    def domain(self, pd: PD) -> ShadowDomain:
        """The PD's counterpart."""
        if pd not in self._domains:
            self._domains[pd] = ShadowDomain(pd, self.other, self._publish_region)
        return self._domains[pd]

    def queue(self, cq: CQ) -> ShadowedQueue:
        """The CQ's counterpart."""
        found = self._queues.get(cq)
        if found is None:
            found = ShadowedQueue(cq, self.other, self.lock, self.advance, self._by_number)
            self._queues[cq] = found
            cq.polling = []
        return found

    def add(self, qp: Any, path: Path, number: int) -> None:
        """Tell a QP what fails on its QP with this number on a path."""
        self._by_number[path][number] = weakref.ref(qp)

    def add_control(self, qp: Any, number: int) -> None:
        """Tell a QP what comes to its control QP."""
        self._by_control[number] = weakref.ref(qp)

    def remove(self, qp: Any) -> None:
        """It is closed."""
        numbers = (qp.qp_num, qp.twin_qp_num, qp.control_qp_num)
        for owners, number in zip((*self._by_number, self._by_control), numbers, strict=True):
            if number is not None:
                owners.pop(number, None)
        self._active.discard(qp)

    def set_active(self, qp: Any, active: bool) -> None:
        """Whether a QP has times of its own."""
        (self._active.add if active else self._active.discard)(qp)

    def do(self, task: Callable[[], bool]) -> None:
        """A part of setting up: now, or in the background; False: it is to be tried again."""
        if self.in_background:
            if not self._tasks:
                self.channel.native.ring(self.failures.cookie)
            self._tasks.append(task)
        elif not task():
            raise PyverbsUserError(
                "the peer's QP has no backup in the key-value service",
                hint="both ends are to be ShiftQPs that use the same service",
            )

    # ---------------------------------------------------------------- the key-value service

    def publish(self, key: str, value: Any) -> None:
        """Set a key, or keep it until the service is back."""
        self._unpublished[key] = value
        with contextlib.suppress(StoreUnreachableError):
            for pending in list(self._unpublished):
                self.store.put(pending, self._unpublished[pending])
                del self._unpublished[pending]

    def _publish_region(self, rkey: int, backup_rkey: int) -> None:
        self.publish(f"region/{self.gid}/{rkey}", backup_rkey)

    def fetch_rkeys(self, gid: str) -> dict[int, int]:
        """Of the NIC with this GID: keys of its regions, and those of its backup's."""
        prefix = f"region/{gid}/"
        found = self.store.scan(prefix)
        known = self._rkeys.setdefault(gid, {})
        known.update({int(key[len(prefix) :]): int(value) for key, value in found.items()})
        return known

    def rkeys(self, gid: str) -> dict[int, int]:
        """What is known, without asking."""
        return self._rkeys.setdefault(gid, {})

    # ---------------------------------------------------------------- what drives all

    def next_time_ns(self) -> int | None:
        """When something is due without anything happening before."""
        with self.lock:
            times = [qp.machine.next_time_ns() for qp in self._active]
        return min((each for each in times if each is not None), default=None)

    def arm(self) -> None:
        """Ring `channel` at the next failure or control message."""
        for cq in (self.failures, self.twin_failures, self.control_cq):
            cq.native.arm(False)

    @property
    def is_active(self) -> bool:
        """Whether a QP is not on its default NIC, or is moving."""
        return bool(self._active)

    def fail_all(self, why: str) -> None:
        """Nobody drives them any more: errors surface at all QPs."""
        with self.lock:
            for qp in self._by_number[Path.DEFAULT].all():
                qp.fail(why)

    @property
    def tasks(self) -> int:
        """How many parts of setting up are to be done."""
        return len(self._tasks)

    def work(self) -> bool:
        """One part of setting up; False, if there is none, or it is to be tried later."""
        if not self._tasks:
            return False
        task = self._tasks.popleft()
        with self.lock:
            done = task()
        if not done:
            self._tasks.append(task)
        return done

    def advance(self) -> None:
        """Take failures, control messages and completions, and do what is due."""
        with self.lock:
            if self._advancing:
                return
            self._advancing = True
            try:
                while self._step():
                    continue
            finally:
                self._advancing = False

    def _step(self) -> bool:
        """Whether anything happened."""
        happened = False
        for path in _PATHS:
            for qp, failure in self._failed(path):
                qp.failed_on(path, failure)
                happened = True
        for native in self.control_cq.native.poll_completions(MAX_CQE):
            qp = self._by_control.of(native.qp_num)
            if qp is not None:
                qp.handle_control(native)
                happened = True
        for qp in list(self._active):
            happened |= qp.advance()
        return happened

    def _failed(self, path: Path) -> Sequence[tuple[Any, Any]]:
        """(QP, completion) of what failed on a path; what is put back comes first."""
        cq = self.twin_failures if path is Path.BACKUP else self.failures
        waiting = self._put_back[path]
        found = cq.native.poll_completions(MAX_CQE)
        if not (waiting or found):
            return _NONE
        self._put_back[path] = []
        for native in found:
            if (qp := self._by_number[path].of(native.qp_num)) is not None:
                waiting.append((qp, native))
        return waiting

    def purge_failures(self, qp: Any, path: Path) -> None:
        """Forget failures of a QP that is left there."""
        others = [each for each in self._failed(path) if each[0] is not qp]
        self._put_back[path] = others


_NONE: tuple[tuple[Any, Any], ...] = ()


def first_psn(number: int) -> int:
    """A PSN to begin with, for a QP with a number: spread, and the same in each run."""
    return number * 2654435761 >> 4 & 0xFFFFFF


def _check(context: Context, other: Context) -> None:
    same = context.endpoint is other.endpoint
    if same or context.query_gid(1, 0).gid == other.query_gid(1, 0).gid:
        raise PyverbsUserError(
            "the backup is on the same NIC", hint="a backup needs a second rail of the host"
        )
    mtus = [each.query_port(1).active_mtu.name for each in (context, other)]
    if mtus[0] != mtus[1]:
        raise PyverbsUserError(
            f"the path MTUs differ: {mtus[0]} and {mtus[1]}",
            hint="open both rails with the same path_mtu",
        )


_IDLE_S = 0.5  # a wait without anything due; what happens ends it
_ACTIVE_S = 0.0005  # while a QP moves, or is on the backup: its completions do not ring
_RETRY_S = 0.02  # between tries to set up what the peer has not published yet
_MOST_DELAY_S = 3.0  # how long set-up of the application may keep that of backups waiting
_NS = 1_000_000_000


class Pump:
    """For a `with` statement around the use of the ShiftQPs of a Backup."""

    def __init__(self, backup: Backup) -> None:
        self._backup = backup
        self._stopping = False
        self._woken, self._waking = os.pipe()
        self._thread = threading.Thread(target=self._run, name="shift", daemon=True)
        self._tasks = 0
        self._since_s: float | None = None  # there has been something to set up
        self.error: BaseException | None = None

    def __enter__(self) -> Pump:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping = True
        os.write(self._waking, b"x")
        self._thread.join(10)
        os.close(self._woken)
        os.close(self._waking)

    def _run(self) -> None:
        backup = self._backup
        try:
            while not self._stopping:
                self._wait(self._patience_s())
                backup.arm()
                backup.advance()
                self._work()
        except BaseException as error:
            self.error = error
            with contextlib.suppress(PyverbsError):
                backup.fail_all(f"the thread that drives the backup ended: {error!r}")

    def _patience_s(self) -> float:
        due_ns = self._backup.next_time_ns()
        patience_s = _ACTIVE_S if self._backup.is_active else _IDLE_S
        if self._backup.tasks:
            patience_s = min(patience_s, _RETRY_S)
        if due_ns is not None:
            patience_s = min(patience_s, max(due_ns - self._backup.now_ns, 0) / _NS)
        return patience_s

    def _work(self) -> None:
        """Set up what is to be, while the application sets up nothing more, or after a while."""
        tasks, now_s = self._backup.tasks, time.monotonic()
        if not tasks:
            self._since_s = None
            return
        if self._since_s is None:
            self._since_s = now_s
        grown, self._tasks = tasks > self._tasks, tasks
        if grown and now_s - self._since_s < _MOST_DELAY_S:
            return
        while not self._stopping and self._backup.work():
            if now_s - self._since_s < _MOST_DELAY_S and time.monotonic() - now_s > _RETRY_S:
                break
        self._tasks = self._backup.tasks

    def _wait(self, patience_s: float) -> None:
        channel = self._backup.channel
        ready, _, _ = select.select([channel.fd, self._woken], [], [], patience_s)
        if channel.fd in ready:
            while channel.native.take() is not None:
                continue
