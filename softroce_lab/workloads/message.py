# SPDX-License-Identifier: GPL-2.0-or-later
"""Messages: bytes of one host's buffer that go to another's, and what becomes of them there."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.transports.api import Key

Buffer: TypeAlias = npt.NDArray[np.generic]

MAX_OPERATIONS = 1 << 16  # the lab's header has 16 bits for an operation, and for a step
MAX_MESSAGES = 1 << 32  # of a step between two hosts
MAX_MESSAGE_BYTES = (1 << 32) - 1


class Combine(enum.IntEnum):
    """What becomes of a message that has arrived."""

    STORE = 0
    ADD = 1  # element by element to what the destination has there


STORE, ADD = Combine.STORE, Combine.ADD

UINT8: np.dtype[np.generic] = np.dtype(np.uint8)
INT32: np.dtype[np.generic] = np.dtype(np.int32)
FLOAT32: np.dtype[np.generic] = np.dtype(np.float32)


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """Bytes from one host's buffer to another's."""

    key: Key  # (operation, step, number), unique between two hosts
    source: int  # hosts by their index among the plan's plain hosts
    destination: int
    length_bytes: int
    source_offset: int = 0
    destination_offset: int = 0
    combine: Combine = STORE
    volatile: bool = False
    """The source may change these bytes before the send is complete: it is sent from a copy."""


def pieces(length_bytes: int, most_bytes: int) -> Iterator[tuple[int, int, int]]:
    """(number, offset, length) of the messages that carry so many bytes; nothing is one, empty."""
    for number in range(piece_count(length_bytes, most_bytes)):
        offset = number * most_bytes
        yield number, offset, min(most_bytes, length_bytes - offset)


def piece_count(length_bytes: int, most_bytes: int) -> int:
    """How many messages carry so many bytes."""
    return max(1, -(-length_bytes // most_bytes))


def combine(message: Message, buffer: Buffer, received: npt.NDArray[np.uint8]) -> None:
    """Do what `message` requires with its bytes that arrived, on the destination's buffer."""
    at = message.destination_offset
    target = buffer.view(np.uint8)[at : at + message.length_bytes]
    if message.combine is ADD:
        target.view(buffer.dtype)[:] += received.view(buffer.dtype)  # type: ignore[misc]
    else:
        target[:] = received
