# SPDX-License-Identifier: GPL-2.0-or-later
"""A run with a user's policy in a process of its own: if that ends or hangs, it is a PolicyError.

The process is a fork of this one. It interrupts a call that does not return by itself
(policy_call.py), and so names the line. This one kills it where that does not help: in a library
that keeps the interpreter's lock, or below millions of frames.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import multiprocessing
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from softroce_lab.errors import LabError
from softroce_lab.experiment.reporter import Progress
from softroce_lab.experiment.transports.policy_call import (
    Outside,
    PolicyCall,
    PolicyError,
    Running,
    restart,
)

T = TypeVar("T")

ENDED = "the process of the run ended"
"""Of one that ends outside of a call of the policy: how the error begins."""

_TICK_S = 0.5
_TICKS_TO_END = 20
_PR_SET_PDEATHSIG = 1  # prctl(2)
_PROGRESS, _RESULT, _RAISED = range(3)


def call(file: str, run: Callable[[Progress], T], progress: Progress) -> T:
    """`run(progress)` in a process of its own; PolicyError if that ends without a result.

    `file` is named if the process ends outside of a call of the policy.
    """
    running = Running(mmap.mmap(-1, Running.BYTES))  # anonymous memory is shared with forks
    outside = Outside(running, PolicyCall.table())
    sys.stdout.flush()  # or both processes would write what is in it
    sys.stderr.flush()
    ours, theirs = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        ours.close()
        _child(theirs, running, run)
    theirs.close()
    try:
        while True:
            while not ours.poll(_TICK_S):
                if (overdue := outside.overdue()) is not None:
                    raise overdue
            kind, value = ours.recv()
            if kind == _RAISED:
                raise value
            if kind == _RESULT:
                return value  # type: ignore[no-any-return]
            progress(value)
    except EOFError:
        how = _ending(pid)
        pid = 0
        error = outside.error(f"ended the process: {how}")
        raise error or PolicyError(file, None, f"{ENDED}: {how}") from None
    finally:
        ours.close()
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@contextlib.contextmanager
def announced(what: str) -> Iterator[None]:
    """If this process ends meanwhile, one beside it writes `what` to stderr."""
    theirs, ours = os.pipe()
    pid = os.fork()
    if pid == 0:
        _announce(theirs, ours, what.encode())
    os.close(theirs)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the user's file may have closed it
            os.write(ours, b".")
            os.close(ours)
        os.waitpid(pid, 0)


def _announce(theirs: int, ours: int, what: bytes) -> NoReturn:
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it goes to the other one, too
        os.close(ours)
        if not os.read(theirs, 1):
            os.write(2, what)
    finally:
        os._exit(0)


def _ending(pid: int) -> str:
    """How a process ended that has closed its pipe; one that has not ended is killed."""
    for _ in range(_TICKS_TO_END):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        time.sleep(_TICK_S / 10)
    else:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit code {os.waitstatus_to_exitcode(status)}"


# --- In the process --------------------------------------------------------------------------


def _child(theirs: Connection, running: Running, run: Callable[[Progress], Any]) -> NoReturn:
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this one ends it
        restart()
        PolicyCall.running = running
        limit_memory()
        outcome = _outcome(run, lambda done: theirs.send((_PROGRESS, done)))
        sys.stdout.flush()  # whoever gets the outcome ends this process
        sys.stderr.flush()
        theirs.send(outcome)
        code = 0
    finally:
        os._exit(code)


def _outcome(run: Callable[[Progress], Any], progress: Progress) -> tuple[int, Any]:
    try:
        return _RESULT, run(progress)
    except LabError as error:
        return _RAISED, error
    except BaseException as error:  # a bug of ours, for the one who started this process
        error.add_note(traceback.format_exc())
        return _RAISED, error


def available_bytes() -> int:
    """Memory that the kernel can give away without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0


def limit_memory() -> None:
    """No more than the machine has: endless recursion ends in a MemoryError of this process."""
    Path("/proc/self/oom_score_adj").write_text("1000")  # if it is not enough, no other one
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + available_bytes()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
