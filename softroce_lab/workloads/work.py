# SPDX-License-Identifier: GPL-2.0-or-later
"""What hosts do, as data: messages, what each waits for, and the buffers before and after.

A workload knows nothing of clocks, transports or networks. It names who sends which bytes of its
buffer to where in whose buffer, in which order, and after what; `progress.HostWork` turns that
into posts, on either clock.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.recovery.api import Key

Buffer: TypeAlias = npt.NDArray[np.generic]
Awaited: TypeAlias = tuple[tuple[int, Key], ...]

MAX_OPERATIONS = MAX_STEPS = 1 << 16  # the lab's header has 16 bits for either
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
    after: Awaited = ()  # receives at `source` that must be complete, combined included
    at_ns: int = 0  # not before this time since the run began


class Workload(abc.ABC):
    """A distributed operation among `ranks`; the n-th rank lives on host `ranks[n]`."""

    ranks: tuple[int, ...]

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """As experiment files call it."""

    @property
    def hosts(self) -> int:
        """How many take part."""
        return len(self.ranks)

    @property
    def buffer_bytes(self) -> int:
        """The largest host's buffer."""
        return max(self.buffer_bytes_of(host) for host in self.ranks)

    @abc.abstractmethod
    def buffer_bytes_of(self, host: int) -> int:
        """Size of a host's buffer; 0 for one that takes no part."""

    @property
    @abc.abstractmethod
    def message_count(self) -> int:
        """How many messages there are, without making them."""

    @abc.abstractmethod
    def messages(self) -> Iterator[Message]:
        """All messages; those of one source in the order in which it posts them."""


class Buffered(Workload):
    """A workload whose bytes are made of a seed, so that every byte is known beforehand."""

    dtype: np.dtype[np.generic]

    @abc.abstractmethod
    def initial(self, host: int, seed: int) -> Buffer:
        """A host's buffer before, of `dtype`: a function of (seed, host)."""

    @abc.abstractmethod
    def expected(self, host: int, seed: int) -> Buffer:
        """A host's buffer afterwards, to the bit."""


@dataclasses.dataclass(frozen=True)
class Sized(Buffered):
    """A workload of `size_bytes` a host, cut into messages of `message_bytes` at most."""

    ranks: tuple[int, ...]
    size_bytes: int
    message_bytes: int
    dtype: np.dtype[np.generic] = UINT8

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        """ValueError for what cannot be: experiment files are checked before, with words."""
        if len(set(self.ranks)) < max(2, len(self.ranks)):
            raise ValueError("a workload has two hosts at least, and each once")
        if self.size_bytes < 0 or not 0 < self.message_bytes <= MAX_MESSAGE_BYTES:
            raise ValueError("a workload has 0 bytes or more, its messages 1 to 2**32 - 1")
        if self.size_bytes % self.dtype.itemsize or self.message_bytes < self.dtype.itemsize:
            raise ValueError(f"sizes must hold whole elements of {self.dtype.itemsize} bytes")

    @property
    def name(self) -> str:  # noqa: D102
        return self.kind

    @functools.cached_property
    def rank_of(self) -> Mapping[int, int]:
        """The ranks of the hosts that take part."""
        return {host: rank for rank, host in enumerate(self.ranks)}


def pieces(length_bytes: int, most_bytes: int) -> Iterator[tuple[int, int, int]]:
    """(number, offset, length) of the messages that carry so many bytes; nothing is one, empty."""
    for number in range(piece_count(length_bytes, most_bytes)):
        offset = number * most_bytes
        yield number, offset, min(most_bytes, length_bytes - offset)


def piece_count(length_bytes: int, most_bytes: int) -> int:
    """How many messages carry so many bytes."""
    return max(1, -(-length_bytes // most_bytes))


def combine(message: Message, buffer: Buffer, received: npt.NDArray[np.uint8]) -> None:
    """Do what `message` says with its bytes that arrived, on the destination's buffer."""
    at = message.destination_offset
    target = buffer.view(np.uint8)[at : at + message.length_bytes]
    if message.combine is ADD:
        target.view(buffer.dtype)[:] += received.view(buffer.dtype)  # type: ignore[misc]
    else:
        target[:] = received


def by_host(workload: Workload) -> dict[int, tuple[list[Message], list[Message]]]:
    """Every rank's host -> the messages that it sends, and those that it receives, in order."""
    ends: dict[int, tuple[list[Message], list[Message]]] = {
        host: ([], []) for host in workload.ranks
    }
    for message in workload.messages():
        ends[message.source][0].append(message)
        ends[message.destination][1].append(message)
    return ends


def mismatches(workload: Buffered, buffers: Sequence[tuple[int, Buffer]], seed: int) -> list[str]:
    """What is wrong with (host, buffer) in the end; [] if every byte is as it must be."""
    found = []
    for host, buffer in buffers:
        expected = workload.expected(host, seed).view(np.uint8)
        wrong = np.flatnonzero(buffer.view(np.uint8) != expected)
        if len(wrong):
            found.append(f"host {host}: {len(wrong)} bytes are wrong, the first at {wrong[0]}")
    return found
