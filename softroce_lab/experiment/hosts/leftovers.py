# SPDX-License-Identifier: GPL-2.0-or-later
"""The end of all that the commands of a run of programs have left running on the lab's hosts.

A command can leave its session, so process groups do not reach all. What gives a process away is
its network namespace, a host's, together with a mount namespace that is not the lab's own:
`lab exec --verbs` makes one for each command, while daemons and verbs of the lab that look into a
host's network keep theirs. Other processes are never signalled.

Run as a program, this file is the guard of a run: it does the same when the run's process has gone
in whatever way, SIGKILL included, for then its standard input ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from softroce_lab.fabric.net import netns
from softroce_lab.paths import PROJECT_ROOT

_KILLED_S = 2.0  # that what got SIGKILL may take to go
_MANAGER_S = 1.0  # that connection managers get to end by themselves, as their programs have
_TURN_S = 0.01
# What a connection manager shares with the `lab exec` that it was forked from.
_MANAGER_WORDS = [b"-m", b"softroce_lab.cli", b"exec"]


def end(namespaces: Collection[int]) -> list[int]:
    """End what runs in these network namespaces (inodes); the processes that are still there."""
    now = time.monotonic()
    managers_until_s, until_s = now + _MANAGER_S, now + _MANAGER_S + _KILLED_S
    while found := _found(namespaces):
        if (now := time.monotonic()) > until_s:
            return found
        for pid in found:
            if now > managers_until_s or not _is_manager(pid):
                _kill(pid, namespaces)
        time.sleep(_TURN_S)
    return []


def _found(namespaces: Collection[int]) -> list[int]:
    pids = (pid for inside in netns.inhabitants(namespaces).values() for pid in inside)
    return [pid for pid in pids if pid != os.getpid() and _is_foreign(pid)]


def _is_foreign(pid: int) -> bool:
    """Whether its mounts are not those of the lab itself."""
    with contextlib.suppress(OSError):
        return _inode(pid, "mnt") != _inode(os.getpid(), "mnt")
    return False


def _inode(pid: int, kind: str) -> int:
    return Path(f"/proc/{pid}/ns/{kind}").stat().st_ino


def _is_manager(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:4] == _MANAGER_WORDS
    return False


def _kill(pid: int, namespaces: Collection[int]) -> None:
    """By a descriptor, and looked at again: the number may be another process's by now."""
    with contextlib.suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            if _inode(pid, "net") in namespaces and _is_foreign(pid):
                signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)


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
        end({os.fstat(fd).st_ino for fd in namespace_fds})
        guard.kill()
        guard.communicate()


def main() -> None:
    """The guard: namespaces by descriptors, which keep their inodes from being used again."""
    namespaces = {os.fstat(int(word)).st_ino for word in sys.argv[1:]}
    while os.read(sys.stdin.fileno(), 1):
        pass
    end(namespaces)


if __name__ == "__main__":
    main()
