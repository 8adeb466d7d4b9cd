# SPDX-License-Identifier: GPL-2.0-or-later
"""Point to point: one stream of bytes from one host to another, as messages of one size."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

MOST_MESSAGES = 1 << 32  # message numbers of a step have 32 bits


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """One message of the transfer: what the workload calls it, and the bytes it carries."""

    number: int
    offset_bytes: int
    length_bytes: int

    @property
    def key(self) -> tuple[int, int, int]:
        """(operation, step, message): a transfer is step 0 of operation 0."""
        return 0, 0, self.number


@dataclasses.dataclass(frozen=True, slots=True)
class Transfer:
    """`total_bytes` in messages of `message_bytes`; nothing at all is one empty message.

    ValueError for sizes that cannot be.
    """

    total_bytes: int
    message_bytes: int

    def __post_init__(self) -> None:
        if self.total_bytes < 0 or not 0 < self.message_bytes < 1 << 32:
            raise ValueError("a transfer has 0 bytes or more, its messages 1 to 2**32 - 1")
        if len(self) > MOST_MESSAGES:
            raise ValueError("a transfer has 2**32 messages at most")

    def __len__(self) -> int:
        return max(1, -(-self.total_bytes // self.message_bytes))

    def __getitem__(self, number: int) -> Piece:
        if not 0 <= number < len(self):
            raise IndexError(number)
        offset = number * self.message_bytes
        return Piece(number, offset, min(self.message_bytes, self.total_bytes - offset))

    def __iter__(self) -> Iterator[Piece]:
        return (self[number] for number in range(len(self)))
