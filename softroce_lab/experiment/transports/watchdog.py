# SPDX-License-Identifier: GPL-2.0-or-later
"""Interrupts a user's code that does not return: a loop without end, or a call that blocks.

A thread checks twice a second whether the same call is still running. It counts checks, not time:
a process that was stopped, or a machine that slept, is no reason.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

LIMIT_S = 5.0
"""How long one call may take; those of the built-in policies take less than a hundredth."""

_TICK_S = 0.5
_IDLE_TICKS = 20  # without any call: the thread ends


class OverdueError(BaseException):
    """A call took too long. Not an `Exception`: a user's `except Exception` does not keep it."""


OnOverdue = Callable[[FrameType], None]


class Watch:
    """The calls of one thread. `enter` and `leave` are on the path of every event: no lock."""

    def __init__(self) -> None:
        self.calls = 0
        self._depth = 0
        self._ticking = False
        self._on_overdue: OnOverdue | None = None
        self._thread_id = threading.get_ident()
        self._by_signal = threading.current_thread() is threading.main_thread()

    def enter(self, on_overdue: OnOverdue) -> None:
        """A call begins; calls may nest, and the outermost counts."""
        if self._depth == 0:
            self.calls += 1
            self._on_overdue = on_overdue
            if not self._ticking:
                self._start()
        self._depth += 1

    def leave(self) -> None:
        """The innermost call is over."""
        self._depth -= 1

    def _start(self) -> None:
        self._ticking = True
        if self._by_signal:
            own = signal.getsignal(signal.SIGALRM) in (signal.SIG_DFL, signal.SIG_IGN, _on_signal)
            self._by_signal = own
            if own:
                signal.signal(signal.SIGALRM, _on_signal)
        threading.Thread(target=self._tick, name="watchdog", daemon=True).start()

    def _tick(self) -> None:
        seen, same = self.calls, 0
        while True:
            time.sleep(_TICK_S)
            same = same + 1 if self.calls == seen else 0
            seen = self.calls
            if self._depth == 0 and same > _IDLE_TICKS:
                self._ticking = False
                return
            if self._depth > 0 and same >= LIMIT_S / _TICK_S:
                self._interrupt()

    def _interrupt(self) -> None:
        frame = sys._current_frames().get(self._thread_id)
        on_overdue = self._on_overdue
        if frame is None or on_overdue is None:
            return
        on_overdue(frame)
        if self._by_signal:  # it ends system calls, too
            signal.pthread_kill(self._thread_id, signal.SIGALRM)
        else:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread_id), ctypes.py_object(OverdueError)
            )

    @property
    def inside(self) -> bool:
        """Whether a call is running."""
        return self._depth > 0


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.watch = Watch()


_of_thread = _OfThread()


def _on_signal(number: int, frame: FrameType | None) -> None:
    if _of_thread.watch.inside:
        raise OverdueError


def of_this_thread() -> Watch:
    """The calls of the current thread."""
    return _of_thread.watch


def restart() -> None:
    """In a process that was forked: the thread that watched stayed behind."""
    _of_thread.watch = Watch()
