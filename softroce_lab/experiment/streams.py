# SPDX-License-Identifier: GPL-2.0-or-later
"""The two sides of a transfer on a host: buffers in a ring, posted, completed, hashed."""

from __future__ import annotations

import abc
import contextlib
import hashlib
import os
from typing import IO, Any, Self

import numpy as np

from softroce_lab.errors import RdmaError, RunError, ibv_wc_status
from softroce_lab.experiment.settings import TransferSettings
from softroce_lab.workloads.transfer import Piece, Transfer

_LOCAL_WRITE = 1  # IBV_ACCESS_LOCAL_WRITE


class Stream(abc.ABC):
    """One side of a transfer: `slots` buffers of one message each, reused in turn."""

    def __init__(
        self, host: Any, peer: int, work: Transfer, settings: TransferSettings, slots: int
    ) -> None:
        self._host = host
        self._peer = peer
        self._work = work
        self._slots = min(slots, len(work))
        size = max(1, min(work.message_bytes, work.total_bytes))
        self._buffer = np.zeros((self._slots, size), dtype=np.uint8)
        self._key = host.register_memory(
            self._buffer.ctypes.data, self._buffer.nbytes, _LOCAL_WRITE
        )
        self._hash = hashlib.sha256() if settings.hash else None
        self._files = contextlib.ExitStack()
        self.done_bytes = 0
        self._done = 0  # messages

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()  # the memory is the engine's until the process ends

    def _open(self, path: str, mode: str) -> IO[bytes]:
        return self._files.enter_context(open(path, mode, buffering=0))  # noqa: PTH123

    @property
    def finished(self) -> bool:
        """Whether every message is done."""
        return self._done == len(self._work)

    def digest(self) -> str | None:
        """SHA-256 of the bytes in their order, hex."""
        return self._hash.hexdigest() if self._hash is not None else None

    @abc.abstractmethod
    def begin(self) -> None:
        """Post as much as may be outstanding."""

    @abc.abstractmethod
    def complete(self, completion: Any) -> None:
        """A work request is over. RdmaError if it failed."""

    def _check(self, completion: Any) -> None:
        status = ibv_wc_status(completion.status)
        if status != ibv_wc_status.IBV_WC_SUCCESS:
            raise RdmaError(status, f"message {completion.wr_id} of the transfer failed")

    def _slot(self, piece: Piece) -> np.ndarray[Any, np.dtype[np.uint8]]:
        return self._buffer[piece.number % self._slots, : piece.length_bytes]

    def _account(self, piece: Piece) -> None:
        self._done += 1
        self.done_bytes += piece.length_bytes

    def _work_request(self, piece: Piece) -> tuple[Any, ...]:
        offset = piece.number % self._slots * self._buffer.shape[1]
        return self._peer, piece.key, self._key, offset, piece.length_bytes, piece.number


class Sender(Stream):
    """Reads the file, sends it."""

    def __init__(self, host: Any, peer: int, work: Transfer, settings: TransferSettings) -> None:
        super().__init__(host, peer, work, settings, settings.depth)
        if settings.path is None:
            raise RunError("a sender needs a file")
        self._file = self._open(settings.path, "rb")
        self._completed: set[int] = set()
        self._next = 0

    def begin(self) -> None:  # noqa: D102
        while self._next < min(self._slots, len(self._work)):
            self._send(self._next)

    def complete(self, completion: Any) -> None:  # noqa: D102
        self._check(completion)
        self._account(self._work[completion.wr_id])
        # Slots go round: message n + slots takes the place of message n.
        self._completed.add(completion.wr_id)
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
        self._host.post_send(*self._work_request(piece))


class Receiver(Stream):
    """Receives, in any order, and takes the messages in theirs: hashed, and written if asked."""

    def __init__(self, host: Any, peer: int, work: Transfer, settings: TransferSettings) -> None:
        # Twice the sender's: a receive is posted before the message it is for begins.
        super().__init__(host, peer, work, settings, 2 * settings.depth)
        self._completed: set[int] = set()
        self._file: IO[bytes] | None = None
        if settings.path is not None:
            self._file = self._open(settings.path, "wb")

    def begin(self) -> None:  # noqa: D102
        for number in range(self._slots):
            self._host.post_receive(*self._work_request(self._work[number]))

    def complete(self, completion: Any) -> None:  # noqa: D102
        self._check(completion)
        if completion.byte_len != self._work[completion.wr_id].length_bytes:
            raise RunError(f"message {completion.wr_id} is {completion.byte_len} bytes long")
        self._completed.add(completion.wr_id)
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
            self._host.post_receive(*self._work_request(self._work[following]))
