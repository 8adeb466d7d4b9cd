# SPDX-License-Identifier: GPL-2.0-or-later
"""What the ShiftQPs of one NIC share: the other NIC, the key-value service, what drives them."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from softroce_lab._native import shift
from softroce_lab.telemetry.published_transitions import Publisher
from softroce_lab.transports.shift.event import Event
from softroce_lab.transports.shift.store import Store, StoreUnreachableError
from softroce_lab.verbs import CQ, GID, MR, PD, CompChannel, Context, PyverbsUserError
from softroce_lab.verbs.base import Closable, expect
from softroce_lab.verbs.device import MAX_CQE
from softroce_lab.verbs.pyverbs_error import PyverbsError

if TYPE_CHECKING:
    from softroce_lab._native.shift import Completions, ShadowDomain, Transition

_ROOM = 64  # completions of the lab's own requests in the queue at the backup NIC
_WAKE = 1  # the cookie of what wakes who drives a backup


class Backup:
    """Another NIC for the QPs of `context`, and how their peers' backups are found.

    `advance` does what is due. A `Pump` calls it on the real clock; on a clock that a program moves
    the program does. With `in_background`, what a new QP needs at the backup is made by `work`,
    not by its constructor.

    PyverbsUserError: both contexts are of one NIC, or their path MTUs differ.
    """

    def __init__(
        self,
        context: Context,
        other: Context,
        store: Store,
        settings: shift.Settings | None = None,
        *,
        in_background: bool = False,
    ) -> None:
        expect("context", context, Context)
        expect("other", other, Context)
        _check(context, other)
        self.context, self.other, self.store = context, other, store
        self.settings = settings or shift.Settings()
        self.gid = context.query_gid(1, 0).gid
        self.events: list[Event] = []
        self.on_event: Callable[[Event], None] = self.events.append
        self._publisher: Publisher | None = None
        if context.statistics:
            self._publisher = Publisher(context.statistics)
            context.when_closed.append(self._publisher.close)
        self.channel = CompChannel(context)
        self._domains: weakref.WeakKeyDictionary[PD, ShadowDomain] = weakref.WeakKeyDictionary()
        self._directory = _Directory(store, self.gid)
        note = weakref.WeakMethod(self._note)  # the native object would hold this one
        self.native = shift.Backup.create(
            context.endpoint,
            context.next_hop_mac,
            other.endpoint,
            other.next_hop_mac,
            self._directory,
            other.new_pd_number(),
            self.channel.native,
            _WAKE,
            lambda transition: (alive := note()) and alive(transition),
            self.settings,
            in_background,
        )

    @property
    def now_ns(self) -> int:
        """The clock of the default NIC."""
        return int(self.context.endpoint.now_ns)

    def _note(self, transition: Transition) -> None:
        """For the program, and for `lab inspect node`."""
        event = Event.of(transition)
        self.on_event(event)
        if self._publisher is not None:
            self._publisher.add(event.row())

    # ---------------------------------------------------------------- what the QPs share

    def domain(self, pd: PD) -> ShadowDomain:
        """What a PD has at the backup: a region for each of its regions, with the same bytes."""
        if pd not in self._domains:
            shadow = PD(self.other)
            domain = self._domains[pd] = shift.ShadowDomain(shadow.handle)
            kept: list[MR] = []  # parents do not hold their children

            def add(region: Closable) -> None:
                if isinstance(region, MR):
                    other = MR(shadow, region.array, region.access, iova=region.iova)
                    region.adopt(other)  # it is closed first
                    kept.append(other)
                    self.native.add_region(domain, region.lkey, other.lkey)
                    self._directory.publish_region(region.rkey, other.rkey)

            for child in pd.children():
                add(child)
            pd.on_region = add
        return self._domains[pd]

    def completions(self, cq: CQ) -> Completions:
        """Where the QPs of a CQ complete, on both NICs; the CQ is polled by way of it."""
        if cq.merged is None:
            channel = None if cq.channel is None else cq.channel.native
            capacity = min(cq.cqe + _ROOM, MAX_CQE)
            cq.merged = self.native.completions(cq.native, capacity, channel, cq.cookie)
        return cq.merged

    # ---------------------------------------------------------------- what drives all

    def advance(self) -> None:
        """Take failures, control messages and completions, and do what is due."""
        self.native.advance()

    def next_time_ns(self) -> int | None:
        """When something is due without anything happening before."""
        due_ns: int | None = self.native.next_time_ns()
        return due_ns

    def work(self) -> bool:
        """One part of setting up; False, if there is none, or it is to be tried later."""
        return bool(self.native.work())

    @property
    def tasks(self) -> int:
        """How many parts of setting up are to be done."""
        return int(self.native.tasks())

    @property
    def is_active(self) -> bool:
        """Whether a QP is not on its default NIC, or is moving."""
        return bool(self.native.is_active())

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Meanwhile no other thread drives it, or posts to a QP that is moving."""
        self.native.acquire()
        try:
            yield
        finally:
            self.native.release()

    def wake(self) -> None:
        """Let a Pump look at once."""
        self.channel.native.ring(_WAKE)


class _Directory:
    """The key-value service, as native/shift asks for what it has."""

    def __init__(self, store: Store, gid: str) -> None:
        self._store, self._gid = store, gid
        self._unpublished: dict[str, Any] = {}

    def _put(self, key: str, value: Any) -> None:
        """Set a key, or keep it until the service is back."""
        self._unpublished[key] = value
        with contextlib.suppress(StoreUnreachableError):
            for pending in list(self._unpublished):
                self._store.put(pending, self._unpublished[pending])
                del self._unpublished[pending]

    def publish_region(self, rkey: int, backup_rkey: int) -> None:
        self._put(f"region/{self._gid}/{rkey}", backup_rkey)

    def publish(self, qp: int, backup: tuple[int, ...]) -> None:
        gid, number, psn, *control = backup
        self._put(
            f"qp/{self._gid}/{qp}",
            {
                "gid": GID.of_address(gid).gid,
                "qp": number,
                "psn": psn,
                "control": dict(zip(_CONTROL, control, strict=True)),
            },
        )

    def find(self, nic: int, qp: int) -> tuple[int, ...] | None:
        key = f"qp/{GID.of_address(nic).gid}/{qp}"
        found = self._scan(key).get(key)
        if found is None:
            return None
        control = (found["control"][name] for name in _CONTROL)
        return (GID(found["gid"]).address, found["qp"], found["psn"], *control)

    def region_keys(self, nic: int) -> dict[int, int]:
        prefix = f"region/{GID.of_address(nic).gid}/"
        return {int(key[len(prefix) :]): value for key, value in self._scan(prefix).items()}

    def _scan(self, prefix: str) -> dict[str, Any]:
        try:
            return self._store.scan(prefix)
        except StoreUnreachableError as error:
            raise shift.Unreachable(str(error)) from error


_CONTROL = ("qp", "psn", "mailbox", "rkey")


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
                backup.native.arm()
                backup.advance()
                self._work()
        except BaseException as error:
            self.error = error
            with contextlib.suppress(PyverbsError):
                backup.native.fail_all(f"the thread that drives the backup ended: {error!r}")

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
