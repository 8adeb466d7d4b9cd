# SPDX-License-Identifier: GPL-2.0-or-later
"""A command at a node of a lab, as `lab exec` runs it, in a session that ends with this process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from softroce_lab.experiment.hosts.printed import Printed

_PR_SET_PDEATHSIG = 1  # prctl(2)
_LIBC = ctypes.CDLL(None)  # before any fork


class ExecProcess:
    """Runs a command, again if asked to, and keeps the end of what it prints."""

    def __init__(self, lab: str, node: str) -> None:
        self._words = ["--lab", lab, node]
        self.printed = Printed()
        self._process: subprocess.Popen[bytes] | None = None  # waited for by `end` alone

    @property
    def has_begun(self) -> bool:
        """Whether there is a process that `end` has not ended."""
        return self._process is not None

    def begin(
        self,
        argv: Sequence[str],
        *,
        verbs: bool = True,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Start it. With `verbs`, programs find the host's soft RNIC (docs/howto/programs.md)."""
        self.printed.clear()
        flags = ["--verbs"] if verbs else []
        words = [sys.executable, "-m", "softroce_lab.cli", "exec", *flags, *self._words]
        self._process = subprocess.Popen(
            [*words, "--", *argv],
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=self.printed.writer,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_dying_with(os.getpid()),
        )

    def status(self) -> int | None:
        """Exit status as subprocess has it, None while it runs. The process stays waitable."""
        assert self._process is not None  # noqa: S101 - it has begun
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def end(self) -> int:
        """End it, and what of its session outlived it; its exit status.

        Before it is waited for, the number of its session is nobody else's.
        """
        assert self._process is not None  # noqa: S101 - it has begun
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        self._process = None
        return status


def read_output(several: Collection[Printed], for_s: float) -> None:
    """For a while, keep the end of what commands print, so that none waits for a reader."""
    until_s = time.monotonic() + for_s
    pipes = {each.fileno(): each for each in several}
    poller = select.poll()
    for fd in pipes:
        poller.register(fd, select.POLLIN)
    while (left_s := until_s - time.monotonic()) > 0:
        for fd, _ in poller.poll(left_s * 1e3):
            pipes[fd].read()


def _dying_with(parent: int) -> Callable[[], None]:
    """For a child before its exec: SIGKILL when the thread that forked it has gone (prctl(2))."""

    def prepare() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it had gone before
            os._exit(1)

    return prepare
