# SPDX-License-Identifier: GPL-2.0-or-later
"""Processes that the ledger owns: none runs before the ledger can identify it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TypedDict, Unpack

from softroce_lab.fabric.ledger import held
from softroce_lab.fabric.ledger.identity import ProcessIdentity
from softroce_lab.fabric.ledger.ledger import Entry, Ledger

_LAST_LINES = 3  # of a dead process's log, in an error
GRACE_S = 2.0  # how long a process may take to comply with SIGTERM

Stream = int | IO[bytes] | None  # as subprocess.Popen takes them


class Process:
    def __init__(self, ledger: Ledger, number: int, popen: subprocess.Popen[bytes]) -> None:
        self._ledger = ledger
        self._number = number
        self._popen = popen
        self.identity = ProcessIdentity.of(popen.pid)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def stdin(self) -> IO[bytes] | None:
        """The parent's end of its standard input, if it was started with subprocess.PIPE."""
        return self._popen.stdin

    @property
    def stdout(self) -> IO[bytes] | None:
        """The parent's end of its standard output, if it was started with subprocess.PIPE."""
        return self._popen.stdout

    @property
    def stderr(self) -> IO[bytes] | None:
        """The parent's end of its standard error, if it was started with subprocess.PIPE."""
        return self._popen.stderr

    def poll(self) -> int | None:
        """Its exit status (-N: killed by signal N), or None while it runs."""
        return self._popen.poll()

    def wait(self, timeout_s: float) -> int | None:
        """Its exit status, or None if it still runs after `timeout_s` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout_s)
        return self._popen.returncode

    def signal(self, number: int) -> None:
        """Send it signal `number`; nothing happens if it is gone."""
        self.identity.signal(number)

    def end(self, grace_s: float = GRACE_S) -> int | None:
        """SIGTERM, up to `grace_s` seconds to comply, SIGKILL; strike it off. Its exit status."""
        if self._popen.poll() is None:
            self.identity.end(grace_s)
        status = self.wait(grace_s)
        if status is not None and self._number in self._ledger.history.entries:
            self._ledger.strike(self._number)
        return status


class Options(TypedDict, total=False):
    """Arguments of `subprocess.Popen`; the standard input is empty by default."""

    stdin: Stream
    stdout: Stream
    stderr: Stream
    env: Mapping[str, str]
    cwd: Path
    pass_fds: Sequence[int]


def spawn(
    ledger: Ledger,
    argv: Sequence[str],
    *,
    role: str,
    netns_fd: int | None = None,
    **options: Unpack[Options],
) -> Process:
    """Run `argv` (no shell) in the network namespace behind `netns_fd`, or in the caller's.

    It gets a session of its own, so that Ctrl-C at the terminal reaches only the parent, which
    ends it. `role` is its name in the ledger and in `lab ps`. A program that cannot be
    executed ends with status 127 and a message on its standard error.
    """
    token = secrets.token_hex(8)
    number = ledger.announce("process", token=token, role=role, argv=list(argv))
    with _pipe() as (go_read, go_write):
        inherited = [go_read] if netns_fd is None else [go_read, netns_fd]
        settings: Options = {"stdin": subprocess.DEVNULL, **options}
        settings["pass_fds"] = [*inherited, *options.get("pass_fds", ())]
        command = [*_holder(go_read, netns_fd, token), *argv]
        popen = subprocess.Popen(command, start_new_session=True, **settings)
        process = Process(ledger, number, popen)
        ledger.identify(number, **dataclasses.asdict(process.identity))
        os.write(go_write, b"g")
        return process


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """A pipe whose ends are both closed on leaving: whoever still waits for a byte gets none."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def _holder(go_fd: int, netns_fd: int | None, token: str) -> list[str]:
    script = str(Path(held.__file__).resolve())
    namespace = "-1" if netns_fd is None else str(netns_fd)
    return [sys.executable, "-I", "-S", script, str(go_fd), namespace, token, "--"]


def recorded(entry: Entry) -> ProcessIdentity | None:
    """The identity of a process in the ledger; None: it never got the go byte, so it is gone."""
    if "pid" not in entry.facts:
        return None
    return ProcessIdentity(*(entry.facts[key] for key in ("pid", "start_ticks", "boot")))


def last_words(log: Path, most: int = _LAST_LINES) -> str:
    """What a process wrote into its log last, to go behind an error about it."""
    lines: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        lines = log.read_text("utf-8", "replace").splitlines()[-most:]
    return f"; it said: {' / '.join(lines)}" if lines else ""
