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

_SIZES = struct.Struct("=QQ")
_RETRY_S = 0.01


@dataclasses.dataclass(frozen=True, slots=True)
class Drained:
    """Sizes of the monitor's files, in bytes, once everything up to some moment is in them."""

    drops_bytes: int
    capture_bytes: int


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
        if len(answer) == _SIZES.size:
            return Drained(*_SIZES.unpack(answer))
        problem = "it ended while it drained"
        break
    raise RunError(
        f"the lab's monitor did not drain its rings in {timeout_s:g} s: {problem}",
        hint=f"its log is in {directory}",
    )


def _ask(path: Path, timeout_s: float) -> bytes:
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as client:
        client.settimeout(timeout_s)
        client.connect(str(path))
        return client.recv(_SIZES.size)
