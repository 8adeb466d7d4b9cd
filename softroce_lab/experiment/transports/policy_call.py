# SPDX-License-Identifier: GPL-2.0-or-later
"""A call into a user's file: one that does not return, or that ends the process, has a name."""

from __future__ import annotations

import mmap
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any, ClassVar, TypeAlias, TypeVar

from softroce_lab.errors import RunError
from softroce_lab.experiment.transports import watchdog

T = TypeVar("T")

GRACE_S = 5.0
"""How long a call may go on after its process was to interrupt it; then the process is ended."""

_PLACE_BITS = 24
_LONGEST_TICK_S = 0.5


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
        """It returned."""
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

    @property
    def place(self) -> int:
        """Its place alone."""
        return self.number % (1 << _PLACE_BITS)


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
        since_s = min(now_s - self._at_s, _LONGEST_TICK_S)
        self._same_s = self._same_s + since_s if self._running.number == self._seen else 0.0
        self._seen, self._at_s = self._running.number, now_s
        if self._same_s < watchdog.LIMIT_S + GRACE_S:
            return None
        return self.error(f"did not return within {watchdog.LIMIT_S:g} s")

    def error(self, why: str) -> PolicyError | None:
        """What is wrong with the call that runs; None: none is known here."""
        if not self._running.number or self._running.place >= len(self._known):
            return None  # none runs, or one that is known there alone
        file, what, line = self._known[self._running.place]
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
        """It begins."""
        watch = watchdog.of_this_thread()
        watch.enter(self._on_overdue)
        self.running.enter(watch.calls, self.place)

    def leave(self) -> None:
        """It returned, or raised."""
        self.running.leave()
        watchdog.of_this_thread().leave()

    def _on_overdue(self, frame: FrameType) -> None:
        self._overdue_line = line_in(self.file, traceback.walk_stack(frame))
        self.running.stays_at(self._overdue_line or 0)
        PolicyCall.overdue = self.error()

    def error(self) -> PolicyError:
        """That it did not return."""
        why = f"{self.what} did not return within {watchdog.LIMIT_S:g} s"
        hint = "it loops or blocks at this line"
        return PolicyError(self.file, self._overdue_line, why, hint=hint)

    def watched(self, run: Callable[[], T]) -> T:
        """Run it; PolicyError if it does not return."""
        self.enter()
        try:
            return run()
        except watchdog.OverdueError:
            raise self.error() from None
        finally:
            self.leave()
