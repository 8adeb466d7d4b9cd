# SPDX-License-Identifier: GPL-2.0-or-later
"""A host's memory in a run that carries bytes, and whether they are right in the end."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from softroce_lab.errors import RunError
from softroce_lab.experiment.hosts.messenger import Memory
from softroce_lab.transports.api import Key
from softroce_lab.workloads.file import FileTransfer
from softroce_lab.workloads.message import ADD, Buffer, Message, combine
from softroce_lab.workloads.schedule import Schedule
from softroce_lab.workloads.work import Buffered, Workload, mismatches


class HostMemory(Protocol):
    """What a host's messages come from and go to; offsets count in `memory`."""

    memory: Memory

    def source(self, message: Message) -> int:
        """Where the bytes of a message that is to be sent are."""

    def sent(self, message: Message) -> None:
        """A message was sent: its bytes are not needed any more."""

    def place(self, message: Message) -> int:
        """Where a message that is to be received goes."""

    def combine(self, message: Message) -> None:
        """Do with a message what it asks for."""

    def wrong(self, digest: str | None = None) -> list[str] | None:
        """What is wrong with the bytes in the end; None: not examined.

        `digest`: SHA-256 of the right ones, hex, if it is known; it may spare making them.
        """

    def keep(self, message: Message) -> None:
        """Keep the bytes of a message that arrived before its turn."""

    def sha256(self) -> str | None:
        """Of a file's bytes, hex; None before the last one, and of other workloads."""
        return None

    def close(self) -> None:
        """Let go of files."""


def host_memory(
    workload: Workload, schedule: Schedule, host: int, seed: int, depth: int
) -> HostMemory:
    """The memory of a host that has at most `depth` sends outstanding to a peer."""
    if isinstance(workload, FileTransfer):
        return FileBuffer(workload, host)
    if not isinstance(workload, Buffered):
        raise TypeError(f"no memory for a {workload.name}")
    return HostBuffer(workload, schedule, host, seed, depth)


def verified(
    wrong: Iterable[Sequence[str] | None], digests: Mapping[str, str | None]
) -> tuple[bool | None, list[str]]:
    """Whether all bytes of a run are right, and what is wrong. None: not all were examined.

    `wrong`: of each host (`HostMemory.wrong`); `digests`: the SHA-256 of a file at its hosts.
    """
    lines = list(wrong)
    found = [line for each in lines for line in each or ()]
    if len(set(digests.values())) > 1:
        found.append("the SHA-256 of both ends differ")
    return (None if None in lines else not found), found


def sha256_fact(digests: Mapping[str, str | None]) -> dict[str, dict[str, str | None]]:
    """For the manifest: the SHA-256 of a file at its hosts; nothing of other workloads."""
    return {"sha256": dict(digests)} if any(digests.values()) else {}


class HostBuffer(HostMemory):
    """The workload's buffer, and room beside it.

    A message that is to be added to the buffer arrives in room beside it; a complete one is added.
    A message whose bytes may change while it is sent is sent from a copy.
    """

    def __init__(
        self, workload: Buffered, schedule: Schedule, host: int, seed: int, depth: int
    ) -> None:
        """Room for `depth` messages to each peer, and for twice as many from each."""
        self._workload, self._host, self._seed = workload, host, seed
        initial = workload.initial(host, seed)
        self._dtype = initial.dtype
        self._buffer_bytes = initial.nbytes
        added = [each for each in schedule.receives(host) if each.combine is ADD]
        copied = [each for each in schedule.sends(host) if each.volatile]
        slots = depth * (2 * len({m.source for m in added}) + len({m.destination for m in copied}))
        slot_bytes = max((each.length_bytes for each in (*added, *copied)), default=0)
        self.memory: Memory = np.zeros(max(1, initial.nbytes) + slots * slot_bytes, dtype=np.uint8)
        self.memory[: initial.nbytes] = initial.view(np.uint8)
        self._free = [len(self.memory) - (at + 1) * slot_bytes for at in range(slots)]
        self._beside: dict[tuple[int, Key], int] = {}  # of receives
        self._early: dict[tuple[int, Key], Memory] = {}
        self._copies: dict[tuple[int, Key], int] = {}  # of sends

    def source(self, message: Message) -> int:
        if not message.volatile:
            return message.source_offset
        at = self._copies[message.destination, message.key] = self._free.pop()
        begin = message.source_offset
        self.memory[at : at + message.length_bytes] = self.memory[
            begin : begin + message.length_bytes
        ]
        return at

    def sent(self, message: Message) -> None:
        if (at := self._copies.pop((message.destination, message.key), None)) is not None:
            self._free.append(at)

    def place(self, message: Message) -> int:
        if message.combine is not ADD:
            return message.destination_offset
        at = self._beside[message.source, message.key] = self._free.pop()
        return at

    def keep(self, message: Message) -> None:
        """Keep a copy of what is to be added: its room is for the next one."""
        if message.combine is ADD:
            self._early[message.source, message.key] = self._taken(message).copy()

    def combine(self, message: Message) -> None:
        if message.combine is ADD:
            early = self._early.pop((message.source, message.key), None)
            combine(message, self.buffer, self._taken(message) if early is None else early)

    def _taken(self, message: Message) -> Memory:
        """A message beside the buffer, whose room is free from the next one on."""
        at = self._beside.pop((message.source, message.key))
        self._free.append(at)
        return self.memory[at : at + message.length_bytes]

    @property
    def buffer(self) -> Buffer:
        return self.memory[: self._buffer_bytes].view(self._dtype)

    def wrong(self, digest: str | None = None) -> list[str]:
        if (
            digest is not None
            and hashlib.sha256(self.buffer.view(np.uint8).data).hexdigest() == digest
        ):
            return []
        return mismatches(self._workload, [(self._host, self.buffer)], self._seed)

    def sha256(self) -> None:
        """Nothing: every byte is compared."""

    def close(self) -> None:
        """Nothing: it has no files."""


class FileBuffer(HostMemory):
    """The buffers of one side of a file transfer, reused from message to message.

    Messages may complete in any order, SHA-256 takes them in theirs: what arrived before its turn
    is copied, so that its buffer is free.
    """

    def __init__(self, workload: FileTransfer, host: int) -> None:
        size, slots = workload.slot_bytes, workload.slots(host)
        self.memory: Memory = np.zeros(max(1, slots * size), dtype=np.uint8)
        self._free = [at * size for at in range(slots)][::-1]
        self._places: dict[tuple[int, Key], int] = {}
        self._hash = hashlib.sha256() if workload.hashed else None
        self._count = workload.message_count
        self._next = 0  # number of the message that the digest takes next
        self._early: dict[int, bytes] = {}
        self._files = contextlib.ExitStack()
        self._read_fd = self._write_fd = -1
        if host == workload.ranks[0]:
            self._read_fd = self._open(workload.path, "rb")
        elif workload.save is not None:
            self._write_fd = self._open(workload.save, "wb")

    def _open(self, path: str, mode: str) -> int:
        try:
            return self._files.enter_context(open(path, mode, buffering=0)).fileno()  # noqa: PTH123
        except OSError as error:
            raise RunError(f"cannot open {path}: {error.strerror}") from error

    def source(self, message: Message) -> int:
        at = self._free.pop()
        self._places[message.destination, message.key] = at
        data = self.memory[at : at + message.length_bytes].data
        _fill(self._read_fd, data, message.source_offset)
        self._digest(message, data)
        return at

    def sent(self, message: Message) -> None:
        self._free.append(self._places.pop((message.destination, message.key)))

    def place(self, message: Message) -> int:
        at = self._places[message.source, message.key] = self._free.pop()
        return at

    def keep(self, message: Message) -> None:
        """Nothing: no receive of a file requires anything."""

    def combine(self, message: Message) -> None:
        """Hash the message, and write it to the file if there is one; its buffer is free."""
        at = self._places.pop((message.source, message.key))
        data = self.memory[at : at + message.length_bytes].data
        if self._write_fd >= 0:
            _write(self._write_fd, data, message.destination_offset)
        self._digest(message, data)
        self._free.append(at)

    def _digest(self, message: Message, data: memoryview) -> None:
        if self._hash is None:
            return
        number = message.key[2]
        if number != self._next:
            self._early[number] = bytes(data)
            return
        self._hash.update(data)
        self._next += 1
        while (early := self._early.pop(self._next, None)) is not None:
            self._hash.update(early)
            self._next += 1

    def wrong(self, digest: str | None = None) -> list[str] | None:
        """Whether the file is incomplete; one side alone has no more information."""
        if self._hash is None:
            return None
        return ["the file is not whole"] if self._next < self._count else []

    def sha256(self) -> str | None:
        if self._hash is None or self._next < self._count:
            return None
        return self._hash.hexdigest()

    def close(self) -> None:
        self._files.close()


def _fill(fd: int, data: memoryview, offset: int) -> None:
    filled = 0
    while filled < len(data):
        got = os.preadv(fd, [data[filled:]], offset + filled)
        if got == 0:
            raise RunError("the file became shorter while it was being sent")
        filled += got


def _write(fd: int, data: memoryview, offset: int) -> None:
    written = 0
    try:
        while written < len(data):
            written += os.pwrite(fd, data[written:], offset + written)
    except OSError as error:
        raise RunError(f"cannot write the received file: {error.strerror}") from error
