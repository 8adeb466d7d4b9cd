# SPDX-License-Identifier: GPL-2.0-or-later
"""Which process is meant, for good: a process id alone is used again."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path


def boot_id() -> str:
    """The number of this boot of the kernel."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def _start_ticks(pid: int) -> int | None:
    """When process `pid` began, in clock ticks since boot; None if there is none, or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    return None if fields[0] in "ZX" else int(fields[19])


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process among all that ever were on this machine."""

    pid: int
    start_ticks: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """The identity of the living process `pid`; ProcessLookupError if there is none."""
        start_ticks = _start_ticks(pid)
        if start_ticks is None:
            raise ProcessLookupError(f"no process {pid}")
        return cls(pid, start_ticks, boot_id())

    def is_alive(self) -> bool:
        return _start_ticks(self.pid) == self.start_ticks and boot_id() == self.boot

    @contextlib.contextmanager
    def _handle(self) -> Iterator[int | None]:
        """A pidfd of this very process, or None if it is gone."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            yield None
            return
        try:  # checked after the pidfd is taken: from here on the id cannot change its meaning
            yield fd if self.is_alive() else None
        finally:
            os.close(fd)

    def signal(self, number: int) -> None:
        """Send it signal `number`; nothing happens if it is gone."""
        with self._handle() as fd, contextlib.suppress(ProcessLookupError):
            if fd is not None:
                signal.pidfd_send_signal(fd, number)

    def wait(self, timeout_s: float) -> bool:
        """Wait until it has ended, for at most `timeout_s` seconds; whether it has."""
        with self._handle() as fd:
            if fd is None:
                return True
            poller = select.poll()
            poller.register(fd, select.POLLIN)
            return bool(poller.poll(timeout_s * 1000))

    def end(self, grace_s: float) -> bool:
        """SIGTERM, up to `grace_s` seconds to comply, SIGKILL; whether it has ended."""
        self.signal(signal.SIGTERM)
        if self.wait(grace_s):
            return True
        self.signal(signal.SIGKILL)
        return self.wait(grace_s)
