# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs of users at a lab's nodes, and the end of them.

A command can leave its session, so process groups do not reach all. What gives a process away is
its network namespace, a node's, together with a mount namespace that is not the lab's own:
`lab exec` makes one for each command, while daemons and verbs of the lab that look into a
host's network keep theirs. Other processes are never signalled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

from softroce_lab.fabric.net import netns

SERVICE = "softroce-cm"
"""The name in ps(1) of the process that serves the programs of a host, and ends after them."""
_SERVICE_S = 1.0  # that services get to end by themselves
_KILLED_S = 2.0  # that what got SIGKILL may take to go
_TURN_S = 0.01


def running(namespaces: Collection[int]) -> dict[int, list[int]]:
    """By network namespace (inode) the programs in it, services left out."""
    return {
        inode: [pid for pid in pids if _is_foreign(pid) and name(pid) != SERVICE]
        for inode, pids in netns.inhabitants(namespaces).items()
    }


def terminate(namespaces: Collection[int], grace_s: float) -> None:
    """SIGTERM to all programs in these namespaces; SIGKILL to those that run after `grace_s`."""
    until_s = time.monotonic() + grace_s
    for pid in _all_in(namespaces):
        _signal(pid, namespaces, signal.SIGTERM)
    while any(running(namespaces).values()) and time.monotonic() < until_s:
        time.sleep(_TURN_S)
    kill(namespaces)


def kill(namespaces: Collection[int]) -> list[int]:
    """SIGKILL to all programs in these namespaces; the processes that are still there."""
    now = time.monotonic()
    services_until_s, until_s = now + _SERVICE_S, now + _SERVICE_S + _KILLED_S
    while found := _all_in(namespaces):
        if (now := time.monotonic()) > until_s:
            return found
        for pid in found:
            if now > services_until_s or name(pid) != SERVICE:
                _signal(pid, namespaces, signal.SIGKILL)
        time.sleep(_TURN_S)
    return []


def name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    return "a process"


def _all_in(namespaces: Collection[int]) -> list[int]:
    pids = (pid for inside in netns.inhabitants(namespaces).values() for pid in inside)
    return [pid for pid in pids if pid != os.getpid() and _is_foreign(pid)]


def _is_foreign(pid: int) -> bool:
    """Whether the process has another mount namespace than this one: it is a program of a user."""
    with contextlib.suppress(OSError):
        return _inode(pid, "mnt") != _inode(os.getpid(), "mnt")
    return False


def _inode(pid: int, kind: str) -> int:
    return Path(f"/proc/{pid}/ns/{kind}").stat().st_ino


def _signal(pid: int, namespaces: Collection[int], number: int) -> None:
    """By a descriptor, and looked at again: the number may be another process's by now."""
    with contextlib.suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            if _inode(pid, "net") in namespaces and _is_foreign(pid):
                signal.pidfd_send_signal(process, number)
        finally:
            os.close(process)
