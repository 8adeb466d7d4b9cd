# SPDX-License-Identifier: GPL-2.0-or-later
"""A file's bytes from one host to another, through a few buffers of one message each.

The buffers are reused, so a file may be larger than the memory. SHA-256 at both ends shows whether
it arrived.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from softroce_lab.workloads.message import (
    MAX_MESSAGE_BYTES,
    MAX_MESSAGES,
    Message,
    piece_count,
    pieces,
)
from softroce_lab.workloads.work import Workload


@dataclasses.dataclass(frozen=True)
class FileTransfer(Workload):
    """The first rank sends the file to the second; offsets of messages count in the file."""

    ranks: tuple[int, ...]
    path: str
    size_bytes: int
    message_bytes: int
    depth: int  # sends outstanding
    save: str | None = None  # the file to write the received bytes to
    hashed: bool = True  # whether both ends compute SHA-256

    kind: ClassVar = "file"

    def __post_init__(self) -> None:
        """ValueError for what cannot be: experiment files are checked before, with words."""
        if len(set(self.ranks)) != 2 or self.depth < 1:
            raise ValueError("a file goes from one host to another, 1 message at once or more")
        if self.size_bytes < 0 or not 0 < self.message_bytes <= MAX_MESSAGE_BYTES:
            raise ValueError("a file has 0 bytes or more, its messages 1 to 2**32 - 1")
        if self.message_count > MAX_MESSAGES:
            raise ValueError("a file has 2**32 messages at most")

    @property
    def name(self) -> str:
        return self.kind

    @property
    def message_count(self) -> int:
        return piece_count(self.size_bytes, self.message_bytes)

    @property
    def longest_message_bytes(self) -> int:
        return min(self.message_bytes, self.size_bytes)

    @property
    def slot_bytes(self) -> int:
        """Size of one of the buffers."""
        return max(1, min(self.message_bytes, self.size_bytes))

    def slots(self, host: int) -> int:
        """How many buffers a host has: a receive is posted before the message that it is for."""
        sides = dict(zip(self.ranks, (self.depth, 2 * self.depth), strict=True))
        return min(sides.get(host, 0), self.message_count)

    def buffer_bytes_of(self, host: int) -> int:
        return self.slots(host) * self.slot_bytes

    def messages(self) -> Iterator[Message]:
        source, destination = self.ranks
        for number, offset, length in pieces(self.size_bytes, self.message_bytes):
            yield Message((0, 0, number), source, destination, length, offset, offset)
