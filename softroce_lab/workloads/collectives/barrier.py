# SPDX-License-Identifier: GPL-2.0-or-later
"""A barrier: nobody leaves it before all have entered it.

Hensgen, Finkel, Manber: Two algorithms for barrier synchronization (1988), the dissemination
barrier. In round k rank r sends an empty message to rank r + 2^k (modulo N), when it has received
those of all rounds before. After ceil(log2 N) rounds it has received from all, directly or not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from softroce_lab.workloads.message import UINT8, Buffer, Message
from softroce_lab.workloads.schedule import Schedule
from softroce_lab.workloads.work import Buffered


@dataclasses.dataclass(frozen=True)
class Barrier(Buffered):
    """A barrier of two ranks or more."""

    ranks: tuple[int, ...]
    dtype: np.dtype[np.generic] = UINT8

    name: ClassVar = "barrier"
    longest_message_bytes: ClassVar = 0

    @property
    def rounds(self) -> int:
        """One after the other."""
        return (self.hosts - 1).bit_length()

    @property
    def message_count(self) -> int:
        return self.rounds * self.hosts

    def buffer_bytes_of(self, host: int) -> int:
        return 0

    def messages(self) -> Iterator[Message]:
        for number in range(self.rounds):
            for rank, host in enumerate(self.ranks):
                to = self.ranks[(rank + (1 << number)) % self.hosts]
                yield Message((0, number, 0), host, to, 0)

    def schedule(self) -> Schedule:
        schedule = Schedule(self.ranks)
        received: dict[int, list[int]] = {host: [] for host in self.ranks}  # one in each round
        for message in self.messages():
            before = received[message.source][: message.key[1]]
            received[message.destination].append(len(schedule.of[message.destination]))
            schedule.transfer(message, tuple(before))
        return schedule

    def initial(self, host: int, seed: int) -> Buffer:
        return np.zeros(0, dtype=UINT8)

    expected = initial
