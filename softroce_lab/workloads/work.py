# SPDX-License-Identifier: GPL-2.0-or-later
"""What hosts do, as data: a schedule, and the buffers before and after.

A workload knows nothing of clocks, transports or networks. It names who sends which bytes of its
buffer to where in whose buffer, in which order, and after what; `progress.HostWork` turns that
into posts, on either clock.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from softroce_lab.plan.effects import stream_key
from softroce_lab.workloads.message import MAX_MESSAGE_BYTES, UINT8, Buffer, Message
from softroce_lab.workloads.schedule import Schedule
from softroce_lab.workloads.streams import random_bytes


class Workload(abc.ABC):
    """A distributed operation among `ranks`; the n-th rank lives on host `ranks[n]`."""

    ranks: tuple[int, ...]
    warm_up: int = 0
    """How many of its operations are a warm-up: the first ones, which figures leave out."""

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

    @property
    @abc.abstractmethod
    def longest_message_bytes(self) -> int:
        """Of all messages, without making them; a bound is enough."""

    @abc.abstractmethod
    def messages(self) -> Iterator[Message]:
        """All messages; those of one source in the order in which it posts them."""

    def __getstate__(self) -> dict[str, object]:
        """Without what is cached: who unpickles this makes it again, faster than it is read."""
        made = functools.cached_property
        return {
            key: value
            for key, value in self.__dict__.items()
            if not isinstance(getattr(type(self), key, None), made)
        }

    def schedule(self) -> Schedule:
        """The graph of every host. By default no message requires another."""
        schedule = Schedule(self.ranks)
        for message in self.messages():
            schedule.transfer(message)
        return schedule


class Buffered(Workload):
    """A workload whose bytes are made of a seed, so that every byte is known beforehand."""

    dtype: np.dtype[np.generic]

    @abc.abstractmethod
    def initial(self, host: int, seed: int) -> Buffer:
        """A host's buffer before, of `dtype`: a function of (seed, host)."""

    @abc.abstractmethod
    def expected(self, host: int, seed: int) -> Buffer:
        """A host's buffer afterwards, to the bit."""


class Copying(Buffered):
    """A host's buffer is what it sends, and behind it what it receives.

    So nothing that is still to be sent again is overwritten.
    """

    @property
    @abc.abstractmethod
    def areas(self) -> Mapping[int, tuple[int, int]]:
        """Of each host how many bytes it sends, and how many it receives."""

    def buffer_bytes_of(self, host: int) -> int:
        return sum(self.areas.get(host, (0, 0)))

    def initial(self, host: int, seed: int) -> Buffer:
        buffer = np.zeros(self.buffer_bytes_of(host), dtype=np.uint8)
        sends, _ = self.areas.get(host, (0, 0))
        buffer[:sends] = random_bytes(stream_key(seed, "buffer", host), 0, sends)
        return buffer

    def expected(self, host: int, seed: int) -> Buffer:
        buffer = self.initial(host, seed)
        for each in self._messages_to.get(host, ()):
            key = stream_key(seed, "buffer", each.source)
            sent = random_bytes(key, each.source_offset, each.length_bytes)
            buffer[each.destination_offset :][: each.length_bytes] = sent
        return buffer

    @functools.cached_property
    def _messages_to(self) -> Mapping[int, list[Message]]:
        """By the host that receives them."""
        found: dict[int, list[Message]] = {}
        for message in self.messages():
            found.setdefault(message.destination, []).append(message)
        return found


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
    def name(self) -> str:
        return self.kind

    @property
    def longest_message_bytes(self) -> int:
        return min(self.message_bytes, self.size_bytes)

    @functools.cached_property
    def rank_of(self) -> Mapping[int, int]:
        """The ranks of the hosts that take part."""
        return {host: rank for rank, host in enumerate(self.ranks)}


def final_digests(workload: Buffered, seed: int) -> dict[int, str]:
    """SHA-256 of each host's buffer in the end, hex."""
    return {
        host: hashlib.sha256(workload.expected(host, seed).view(np.uint8).data).hexdigest()
        for host in workload.ranks
    }


def mismatches(workload: Buffered, buffers: Sequence[tuple[int, Buffer]], seed: int) -> list[str]:
    """What is wrong with (host, buffer) in the end; [] if every byte is as it must be."""
    found = []
    for host, buffer in buffers:
        expected = workload.expected(host, seed).view(np.uint8)
        wrong = np.flatnonzero(buffer.view(np.uint8) != expected)
        if len(wrong):
            found.append(f"host {host}: {len(wrong)} bytes are wrong, the first at {wrong[0]}")
    return found
