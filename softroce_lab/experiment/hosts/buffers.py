# SPDX-License-Identifier: GPL-2.0-or-later
"""A host's memory in a run that carries bytes: the workload's buffer, and room for what is added.

A message that is to be added to the buffer arrives beside it, and is added when it is whole.
"""

from __future__ import annotations

import numpy as np

from softroce_lab.experiment.hosts.messenger import Memory
from softroce_lab.recovery.api import Key
from softroce_lab.workloads.work import ADD, Buffer, Message, Workload, combine


class HostBuffer:
    """The memory of one host; offsets count in `memory`."""

    def __init__(self, workload: Workload, host: int, seed: int, messages: list[Message]) -> None:
        """`messages`: all that it will receive."""
        initial = workload.initial(host, seed)
        added = [message for message in messages if message.combine is ADD]
        self._slot_bytes = max((message.length_bytes for message in added), default=0)
        self._buffer_bytes = initial.nbytes
        self.memory: Memory = np.zeros(max(1, initial.nbytes), dtype=np.uint8)
        self.memory[: initial.nbytes] = initial.view(np.uint8)
        self._dtype = initial.dtype
        self._free: list[int] = []
        self._beside: dict[tuple[int, Key], int] = {}

    def reserve(self, slots: int) -> None:
        """Make room for so many messages at once; before the memory is registered."""
        room = np.zeros(slots * self._slot_bytes, dtype=np.uint8)
        self._free = [self._buffer_bytes + at * self._slot_bytes for at in range(slots)][::-1]
        self.memory = np.concatenate([self.memory, room])

    def place(self, message: Message) -> int:
        """Where a message that is to be received goes."""
        if message.combine is not ADD:
            return message.destination_offset
        at = self._beside[message.source, message.key] = self._free.pop()
        return at

    def received(self, message: Message) -> None:
        """A message is whole: do with it what the workload says."""
        at = self._beside.pop((message.source, message.key), None)
        if at is None:
            return  # it arrived where it belongs
        combine(message, self.buffer, self.memory[at : at + message.length_bytes])
        self._free.append(at)

    @property
    def buffer(self) -> Buffer:
        """The workload's buffer, as it is now."""
        return self.memory[: self._buffer_bytes].view(self._dtype)
