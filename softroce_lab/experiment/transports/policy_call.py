# SPDX-License-Identifier: GPL-2.0-or-later
"""A call into a user's file: one that does not return, or that ends the process, has a name."""

from __future__ import annotations

import ctypes
import mmap
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any, ClassVar, TypeAlias, TypeVar

from softroce_lab.errors import RunError

T = TypeVar("T")

GRACE_S = 5.0
"""How long a call may go on after its process was to interrupt it; then the process is ended."""

_PLACE_BITS = 24


class PolicyError(RunError):
    """A user's policy failed; `str()` begins with its file and line."""

    def __init__(self, file: str, line: int | None, why: str, *, hint: str | None = None) -> None:
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {why}", hint=hint)
        self.file, self.line, self.why = file, line, why

    def __reduce__(self) -> Any:  # it crosses processes
        return type(self), (self.file, self.line, self.why)


def by_user(error: BaseException) -> bool:
    """Whether the user's Ctrl-C raised it, and not the policy itself.

    The signal comes to the main thread alone, and not where it is ignored.
    """
    listens = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    )
    return isinstance(error, KeyboardInterrupt) and listens


# --- Interrupts a call that does not return ------------------------------------------------------

LIMIT_S = 5.0
"""How long one call may take; those of the built-in policies take less than a hundredth."""

_TICK_S = 0.5
_IDLE_TICKS = 20  # without any call: the thread ends


class OverdueError(BaseException):
    """A call took too long. Not an `Exception`: a user's `except Exception` does not keep it."""


OnOverdue: TypeAlias = Callable[[FrameType], None]


class Watch:
    """The calls of one thread. `enter` and `leave` are on the path of every event: no lock.

    A thread checks twice a second whether the same call is still running. It counts checks, not
    time: a process that was stopped, or a machine that slept, is no reason.
    """

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
        return self._depth > 0


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.watch = Watch()


_of_thread = _OfThread()


def _on_signal(number: int, frame: FrameType | None) -> None:
    if _of_thread.watch.inside:
        raise OverdueError


def of_this_thread() -> Watch:
    return _of_thread.watch


def restart() -> None:
    """In a process that was forked: the thread that watched stayed behind."""
    _of_thread.watch = Watch()


# --- The call ------------------------------------------------------------------------------------

Frames: TypeAlias = Iterable[tuple[FrameType, int]]


def line_in(file: str, frames: Frames) -> int | None:
    """The line of the first frame that is of this file; None: there is none."""
    return next((line for frame, line in frames if frame.f_code.co_filename == file), None)


class Running:
    """The call that runs in a process, in memory that another process may share."""

    BYTES = 16

    def __init__(self, memory: bytearray | mmap.mmap) -> None:
        self._words = memoryview(memory).cast("q")

    def enter(self, number: int, place: int) -> None:
        """The process's call of this number begins. It is on the path of every event."""
        self._words[0] = number << _PLACE_BITS | place

    def leave(self) -> None:
        self._words[0] = 0

    def stays_at(self, line: int) -> None:
        """It is overdue, at this line."""
        self._words[1] = line

    @property
    def line(self) -> int:
        """Where it is overdue; 0: it is not."""
        return self._words[1]

    @property
    def number(self) -> int:
        """Of the call that runs, and its place among all that are known; 0: none runs."""
        return self._words[0]


class Outside:
    """What one process knows of the calls of another: it ends where that one cannot."""

    def __init__(self, running: Running, known: Sequence[tuple[str, str, int | None]]) -> None:
        """`known`: `PolicyCall.table()` of the other process."""
        self._running, self._known = running, known
        self._seen, self._same_s, self._at_s = 0, 0.0, time.monotonic()

    def overdue(self) -> PolicyError | None:
        """A call that did not return, and that its process did not end. To be asked often.

        A machine that sleeps between two questions makes no call overdue.
        """
        now_s = time.monotonic()
        since_s = min(now_s - self._at_s, _TICK_S)
        self._same_s = self._same_s + since_s if self._running.number == self._seen else 0.0
        self._seen, self._at_s = self._running.number, now_s
        if self._same_s < LIMIT_S + GRACE_S:
            return None
        return self.error(f"did not return within {LIMIT_S:g} s")

    def error(self, why: str) -> PolicyError | None:
        """What is wrong with the call that runs; None: none is known here."""
        place = self._running.number % (1 << _PLACE_BITS)
        if not self._running.number or place >= len(self._known):
            return None  # none runs, or one that is known there alone
        file, what, line = self._known[place]
        return PolicyError(file, self._running.line or line, f"{what} {why}")


class PolicyCall:
    """A part of a user's file that is called: a hook, the constructor, or the file itself."""

    known: ClassVar[list[PolicyCall]] = []
    overdue: ClassVar[PolicyError | None] = None
    """Of a call that did not return, and cannot be interrupted where it blocks."""
    running: ClassVar[Running] = Running(bytearray(Running.BYTES))
    """Of this process."""

    def __init__(self, file: str, what: str, line: int | None = None) -> None:
        """`line`: where it begins."""
        self.file, self.what, self.line = file, what, line
        self.place = len(self.known)
        self.known.append(self)
        self._overdue_line: int | None = None

    @classmethod
    def table(cls) -> list[tuple[str, str, int | None]]:
        """File, name and first line of all calls of this process, by place."""
        return [(call.file, call.what, call.line) for call in cls.known]

    def enter(self) -> None:
        watch = of_this_thread()
        watch.enter(self._on_overdue)
        self.running.enter(watch.calls, self.place)

    def leave(self) -> None:
        self.running.leave()
        of_this_thread().leave()

    def _on_overdue(self, frame: FrameType) -> None:
        self._overdue_line = line_in(self.file, traceback.walk_stack(frame))
        self.running.stays_at(self._overdue_line or 0)
        PolicyCall.overdue = self.error()

    def error(self) -> PolicyError:
        why = f"{self.what} did not return within {LIMIT_S:g} s"
        hint = "it loops or blocks at this line"
        return PolicyError(self.file, self._overdue_line, why, hint=hint)

    def watched(self, run: Callable[[], T]) -> T:
        """Run it; PolicyError if it does not return."""
        self.enter()
        try:
            return run()
        except OverdueError:
            raise self.error() from None
        finally:
            self.leave()
