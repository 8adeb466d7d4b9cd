# SPDX-License-Identifier: GPL-2.0-or-later
"""softroce-monitor: the lab's native process that moves drop records and captures into files."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import struct
import time
from pathlib import Path

from softroce_lab.errors import RunError
from softroce_lab.paths import native_program

PROGRAM = "softroce-monitor"
DROPS = "drops.bin"
CAPTURE = "capture.bin"
SOCKET = "monitor.sock"
LOG = "monitor.log"  # its standard error

_ANSWER = struct.Struct("=QQQQ")
_RETRY_S = 0.01
_LOG_LINES = 3  # of a dead monitor, in the error


@dataclasses.dataclass(frozen=True, slots=True)
class Drained:
    """The monitor's files once everything up to some moment is in them.

    Each takes 64 MiB at most, or a quarter of what was free in /run if that is less; records
    beyond that are lost.
    """

    drops_bytes: int
    capture_bytes: int
    drops_lost: int  # records since the lab came up
    captures_lost: int


def argv(bpffs: Path, directory: Path) -> list[str]:
    """The command that drains the rings pinned in `bpffs` into `directory`; SIGTERM ends it.

    EnvironmentLackError if it was never built.
    """
    return [str(native_program(PROGRAM)), str(bpffs), str(directory)]


def sync(directory: Path, timeout_s: float) -> Drained:
    """Wait until all that was recorded before this call is in the files of `directory`.

    RunError after `timeout_s` seconds, or if the monitor dies.
    """
    deadline = time.monotonic() + timeout_s
    problem: OSError | str = "it does not answer"
    while (left_s := deadline - time.monotonic()) > 0:
        try:
            answer = _ask(directory / SOCKET, left_s)
        except (FileNotFoundError, ConnectionRefusedError) as error:  # it is starting, or gone
            problem = error
            time.sleep(min(_RETRY_S, left_s))
            continue
        except TimeoutError as error:
            problem = error
            break
        if len(answer) == _ANSWER.size:
            return Drained(*_ANSWER.unpack(answer))
        problem = "it ended while it drained"
        break
    raise RunError(
        f"the lab's monitor did not drain its rings in {timeout_s:g} s: {problem}"
        + _last_words(directory),
        hint=f"its log is {directory / LOG}",
    )


def _last_words(directory: Path) -> str:
    """What the monitor said last, to go behind an error."""
    try:
        lines = (directory / LOG).read_text("utf-8", "replace").splitlines()[-_LOG_LINES:]
    except FileNotFoundError:
        lines = []
    return f"; it said: {' / '.join(lines)}" if lines else ""


def _ask(path: Path, timeout_s: float) -> bytes:
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as client:
        client.settimeout(timeout_s)
        client.connect(str(path))
        return client.recv(_ANSWER.size)
