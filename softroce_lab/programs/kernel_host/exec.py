# SPDX-License-Identifier: GPL-2.0-or-later
"""A command in a kernel host at this process's own standard streams, as if it ran here."""

from __future__ import annotations

import contextlib
import os
import shutil
import termios
import threading
import tty
from collections.abc import Iterator, Sequence

from softroce_lab.programs.kernel_host.guest import Command, Guest

_READ_BYTES = 8192
_FD = {"out": 1, "err": 2}


def execute(guest: Guest, argv: Sequence[str]) -> int:
    """Run it to its end; its exit status as a shell has it. RunError if the guest dies.

    With a terminal at both ends it has a terminal there, too, so that shells and editors work.
    """
    at_terminal = os.isatty(0) and os.isatty(1)
    window = shutil.get_terminal_size()
    size = (window.lines, window.columns) if at_terminal else None
    env = {"TERM": os.environ.get("TERM", "vt100")} if at_terminal else {}
    with guest.start(argv, tty=size, env=env) as command, _raw() if at_terminal else _as_it_is():
        threading.Thread(target=_feed, args=(command,), daemon=True).start()
        code = command.stream(_show)
    return code if code >= 0 else 128 - code


def _feed(command: Command) -> None:
    """Hand on what comes in."""
    with contextlib.suppress(OSError):
        while data := os.read(0, _READ_BYTES):
            command.write(data)
    command.end_input()


def _show(kind: str, data: bytes) -> None:
    while data:
        data = data[os.write(_FD[kind], data) :]


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Every key goes to the guest, Ctrl-C too."""
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _as_it_is() -> Iterator[None]:
    yield
