# SPDX-License-Identifier: GPL-2.0-or-later
"""What drives a Backup on the real clock: a thread that waits for failures and control messages."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time

from softroce_lab.transports.shift.backup import Backup
from softroce_lab.verbs.pyverbs_error import PyverbsError

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
