# SPDX-License-Identifier: GPL-2.0-or-later
"""Commands at a lab's hosts, started as `lab exec` does: what they print, and the end of them all.

Run as a program, this file is the guard of a run: it does the same when the run's process has gone
in whatever way, SIGKILL included, for then its standard input ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from softroce_lab.fabric.net import programs
from softroce_lab.paths import PROJECT_ROOT

_PR_SET_PDEATHSIG = 1  # prctl(2)
_LIBC = ctypes.CDLL(None)  # before any fork

KEPT_BYTES = 1 << 16  # of the end of each command's output
SEARCH_S = 5.0  # for a pattern of the user's, which can take for ever

_TURN_S = 0.01


class Printed:
    """A pipe for a command's output, and the last KEPT_BYTES that came out of it."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._fd, self.writer = os.pipe()  # the command inherits the latter
        os.set_blocking(self._fd, False)

    def fileno(self) -> int:
        return self._fd

    def read(self) -> int:
        """Keep what has come, one pipe's worth at most: bytes."""
        try:
            got = os.read(self._fd, KEPT_BYTES)
        except BlockingIOError:
            return 0
        self._kept += got
        del self._kept[:-KEPT_BYTES]
        return len(got)

    def clear(self) -> None:
        self.read()
        self._kept.clear()

    def close(self) -> None:
        """Keep what is still in the pipe; nobody can print any more."""
        os.close(self.writer)
        self.read()
        os.close(self._fd)

    @property
    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")


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


class ExecProcess:
    """Runs a command, again if asked to, and keeps the end of what it prints."""

    def __init__(self, lab: str, node: str) -> None:
        self._words = ["--lab", lab, node]
        self.printed = Printed()
        self._process: subprocess.Popen[bytes] | None = None  # waited for by `end` alone

    @property
    def has_begun(self) -> bool:
        return self._process is not None

    def begin(
        self,
        argv: Sequence[str],
        *,
        verbs: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it, in the folder of this process.

        With `verbs`, programs find the host's soft RNIC (docs/howto/programs.md).
        """
        self.printed.clear()
        flags = ["--verbs"] if verbs else []
        # -P: that folder may be another checkout of softroce_lab.
        words = [sys.executable, "-P", "-m", "softroce_lab.cli", "exec", *flags, *self._words]
        self._process = subprocess.Popen(
            [*words, "--", *argv],
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


def _dying_with(parent: int) -> Callable[[], None]:
    """For a child before its exec: SIGKILL when the thread that forked it has gone (prctl(2))."""

    def prepare() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it had gone before
            os._exit(1)

    return prepare


# --- A search in what they print -----------------------------------------------------------------

# A process of its own, because no search of re can be broken off. Its exit status is the answer.
_SEARCH = """
import json, re, sys
pattern, text = json.load(sys.stdin)
matches = list(re.finditer(pattern, text, re.MULTILINE))
if matches:
    print(json.dumps([matches[0].start(), matches[-1].groupdict()]))
sys.exit(10 if matches else 11)
"""
_ANSWERS = {10: True, 11: False}


class Found(NamedTuple):
    """What a search came to."""

    has: bool | None  # None: it took too long
    line: str = ""  # in which the first match begins
    groups: Mapping[str, str | None] = {}  # by name, of the last match


def search(pattern: str, text: str, limit_s: float = SEARCH_S) -> Found:
    """Whether `text` has the pattern, `^` and `$` of lines, and where; its named groups."""
    argv = [sys.executable, "-I", "-S", "-c", _SEARCH]
    try:
        done = subprocess.run(
            argv, input=json.dumps([pattern, text]).encode(), stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, timeout=limit_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Found(None)
    has = _ANSWERS.get(done.returncode)
    if not has:
        return Found(has)
    at, groups = json.loads(done.stdout)
    line = text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0].strip()
    return Found(has, line, groups)


# --- What they leave running ---------------------------------------------------------------------


@contextlib.contextmanager
def guarded(namespace_fds: Collection[int]) -> Iterator[None]:
    """In the end, nothing of the commands runs in these namespaces, even if this process dies."""
    argv = [sys.executable, "-m", __spec__.name, *map(str, namespace_fds)]
    guard = subprocess.Popen(
        argv, cwd=PROJECT_ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, pass_fds=tuple(namespace_fds), start_new_session=True,
    )  # fmt: skip
    try:
        yield
    finally:
        programs.kill({os.fstat(fd).st_ino for fd in namespace_fds})
        guard.kill()
        guard.communicate()


if __name__ == "__main__":  # the guard: descriptors keep inodes of namespaces from being reused
    inodes = {os.fstat(int(word)).st_ino for word in sys.argv[1:]}
    while os.read(sys.stdin.fileno(), 1):
        pass
    programs.kill(inodes)
