# SPDX-License-Identifier: GPL-2.0-or-later
"""softroce-monitor: the lab's native process that writes drop records and captures.

Its control socket is `monitor.sock` (native/monitor/protocol.hpp).
"""

from __future__ import annotations

import array
import contextlib
import dataclasses
import enum
import os
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from softroce_lab.errors import RunError
from softroce_lab.fabric.ledger import process
from softroce_lab.paths import native_program
from softroce_lab.structs import Struct, enumerators

PROGRAM = "softroce-monitor"
ROLE = "monitor"  # in the ledger
DROPS = "drops.bin"
SOCKET = "monitor.sock"
LOG = "monitor.log"  # its standard error
FILES = (LOG, DROPS, SOCKET)  # in the lab's directory, to be announced in the ledger

TIMEOUT_S = 5.0  # it responds between two moves of records, in milliseconds

_REQUEST = Struct("monitor::Request")
_ANSWER = Struct("monitor::Answer")
_MOST_BYTES = 1 << 20  # of a response: two numbers for each of 65,000 links
_RETRY_S = 0.01


Word = enum.IntEnum(
    "Word", {name.upper(): value for name, value in enumerators("monitor::Word").items()}
)


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    word: Word
    error: int  # errno; 0: none
    numbers: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Drained:
    """The drop log once everything up to some moment is in it.

    It takes 64 MiB at most, or a quarter of what was free in /run if that is less; records beyond
    that are lost.
    """

    drops_bytes: int
    drops_lost: int  # records since the lab came up
    pauses: tuple[tuple[int, int], ...] = ()
    """When the monitor did not run, begin and end by CLOCK_MONOTONIC; seen while one is connected.
    """


def argv(bpffs: Path, directory: Path) -> list[str]:
    """The command that drains the rings pinned in `bpffs` into `directory`; SIGTERM ends it.

    EnvironmentLackError if it was never built.
    """
    return [str(native_program(PROGRAM)), str(bpffs), str(directory)]


def sync(directory: Path, timeout_s: float) -> Drained:
    """Wait until all that was recorded before this call is in the files of `directory`.

    RunError after `timeout_s` seconds, or if the monitor dies.
    """
    with Connection(directory, timeout_s) as monitor:
        monitor.send(Word.SYNC)
        drops_bytes, drops_lost, *times = monitor.receive().numbers
        return Drained(drops_bytes, drops_lost, tuple(zip(times[::2], times[1::2], strict=True)))


class Connection:
    """A connection to the monitor of a lab. RunError if it is dead or does not respond."""

    def __init__(self, directory: Path, timeout_s: float = TIMEOUT_S) -> None:
        """Connect; a monitor that was only just started is waited for, `timeout_s` in all."""
        self._directory = directory
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._socket = self._connected()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the monitor, which ends what was captured for us."""
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(
        self, word: Word, snap_bytes: int = 0, most_packets: int = 0, files: Sequence[int] = ()
    ) -> None:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))
        request = _REQUEST.pack(word=word, snap_bytes=snap_bytes, most_packets=most_packets)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendmsg([request], [rights] if files else [])

    def receive(self, timeout_s: float | None = None) -> Answer:
        """The next response, in the rest of the connection's time, or in `timeout_s`."""
        if timeout_s is None:
            timeout_s = self._deadline - time.monotonic()
        self._socket.settimeout(max(timeout_s, 0.001))
        try:
            data = self._received()
        except OSError as error:
            raise self._failed(error) from error
        if len(data) < _ANSWER.size:
            raise self._failed("it ended")
        head = _ANSWER.unpack(data)
        count = (len(data) - _ANSWER.size) // 8
        numbers = struct.unpack_from(f"={count}Q", data, _ANSWER.size)
        return Answer(Word(head.word), head.error, numbers)

    def _received(self) -> bytes:
        try:
            return self._socket.recv(_MOST_BYTES)
        except ConnectionResetError:  # the monitor has closed; its earlier messages are readable
            return self._socket.recv(_MOST_BYTES)

    def _connected(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            while True:
                try:
                    made.connect(os.fspath(self._directory / SOCKET))
                except (FileNotFoundError, ConnectionRefusedError) as error:  # starting, or gone
                    if time.monotonic() + _RETRY_S > self._deadline:
                        raise self._failed(error) from error
                    time.sleep(_RETRY_S)
                else:
                    return made
        except BaseException:
            made.close()
            raise

    def _failed(self, why: object) -> RunError:
        return RunError(
            f"the lab's monitor did not answer in {self._timeout_s:g} s: {why}"
            + process.last_words(self._directory / LOG),
            hint=f"its log is {self._directory / LOG}",
        )
