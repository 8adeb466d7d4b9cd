# SPDX-License-Identifier: GPL-2.0-or-later
"""The two sides of a transfer on a host: buffers in a ring, posted, completed, hashed."""

from __future__ import annotations

import abc
import contextlib
import hashlib
import os
from typing import IO, Any

import numpy as np

from softroce_lab.errors import RdmaError, RunError, ibv_wc_status
from softroce_lab.experiment.hosts.messenger import Done, Messenger
from softroce_lab.experiment.hosts.settings import TransferSettings
from softroce_lab.experiment.hosts.task import Task
from softroce_lab.recovery.api import Key
from softroce_lab.workloads.transfer import Piece, Transfer


class Stream(Task):
    """One side of a transfer: `slots` buffers of one message each, reused in turn."""

    def __init__(self, settings: TransferSettings, slots: int) -> None:
        self._work = work = Transfer(settings.total_bytes, settings.message_bytes)
        self.peers = (settings.peer,)
        self._slots = min(slots, len(work))
        size = max(1, min(work.message_bytes, work.total_bytes))
        self._buffer = np.zeros((self._slots, size), dtype=np.uint8)
        self.memory = self._buffer.reshape(-1)
        self._hash = hashlib.sha256() if settings.hash else None
        self._files = contextlib.ExitStack()
        self._done = 0  # messages

    def close(self) -> None:
        """Let go of files."""
        self._files.close()

    def _open(self, path: str, mode: str) -> IO[bytes]:
        return self._files.enter_context(open(path, mode, buffering=0))  # noqa: PTH123

    @property
    def finished(self) -> bool:
        """Whether every message is done."""
        return self._done == len(self._work)

    def digest(self) -> str | None:
        """SHA-256 of the bytes in their order, hex."""
        return self._hash.hexdigest() if self._hash is not None else None

    def result(self) -> dict[str, Any]:
        """What was sent or received."""
        return {"bytes": self.done_bytes, "sha256": self.digest()}

    def prepare(self, messenger: Messenger) -> None:
        """Post the receives."""
        self._messenger = messenger

    def begin(self, now_ns: int) -> None:
        """Post the sends."""

    def complete(self, done: Done) -> None:
        """A message is over. RdmaError if it failed."""
        status = ibv_wc_status(done.status)
        if status != ibv_wc_status.IBV_WC_SUCCESS:
            raise RdmaError(status, f"message {done.key[2]} of the transfer failed")
        self._go_on(done.key[2], done.bytes)

    @abc.abstractmethod
    def _go_on(self, number: int, length_bytes: int) -> None:
        """A message was sent, or received."""

    def _slot(self, piece: Piece) -> np.ndarray[Any, np.dtype[np.uint8]]:
        return self._buffer[piece.number % self._slots, : piece.length_bytes]

    def _account(self, piece: Piece) -> None:
        self._done += 1
        self.done_bytes += piece.length_bytes

    def _post(self, piece: Piece) -> tuple[int, Key, int, int]:
        """What a post of this message says."""
        offset = piece.number % self._slots * self._buffer.shape[1]
        return self.peers[0], piece.key, offset, piece.length_bytes


class Sender(Stream):
    """Reads the file, sends it."""

    def __init__(self, settings: TransferSettings) -> None:
        super().__init__(settings, settings.depth)
        if settings.path is None:
            raise RunError("a sender needs a file")
        self._file = self._open(settings.path, "rb")
        self._completed: set[int] = set()
        self._next = 0

    def begin(self, now_ns: int) -> None:  # noqa: D102
        while self._next < min(self._slots, len(self._work)):
            self._send(self._next)

    def _go_on(self, number: int, length_bytes: int) -> None:
        self._account(self._work[number])
        # Slots go round: message n + slots takes the place of message n.
        self._completed.add(number)
        while self._next < len(self._work) and self._next - self._slots in self._completed:
            self._completed.discard(self._next - self._slots)
            self._send(self._next)

    def _send(self, number: int) -> None:
        piece = self._work[number]
        slot = self._slot(piece).data
        filled = 0
        while filled < piece.length_bytes:
            got = os.preadv(self._file.fileno(), [slot[filled:]], piece.offset_bytes + filled)
            if got == 0:
                raise RunError("the file became shorter while it was being sent")
            filled += got
        if self._hash is not None:
            self._hash.update(slot)
        self._next = number + 1
        self._messenger.post_send(*self._post(piece))


class Receiver(Stream):
    """Receives, in any order, and takes the messages in theirs: hashed, and written if asked."""

    def __init__(self, settings: TransferSettings) -> None:
        # Twice the sender's: a receive is posted before the message it is for begins.
        super().__init__(settings, 2 * settings.depth)
        self._completed: set[int] = set()
        self._file: IO[bytes] | None = None
        if settings.path is not None:
            self._file = self._open(settings.path, "wb")

    def prepare(self, messenger: Messenger) -> None:  # noqa: D102
        super().prepare(messenger)
        for number in range(self._slots):
            messenger.post_receive(*self._post(self._work[number]))

    def _go_on(self, number: int, length_bytes: int) -> None:
        if length_bytes != self._work[number].length_bytes:
            raise RunError(f"message {number} is {length_bytes} bytes long")
        self._completed.add(number)
        while self._done in self._completed:
            self._completed.remove(self._done)
            self._take(self._work[self._done])

    def _take(self, piece: Piece) -> None:
        slot = self._slot(piece).data
        if self._hash is not None:
            self._hash.update(slot)
        if self._file is not None:
            self._file.write(slot)
        self._account(piece)
        following = piece.number + self._slots
        if following < len(self._work):
            self._messenger.post_receive(*self._post(self._work[following]))
