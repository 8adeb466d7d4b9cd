# SPDX-License-Identifier: GPL-2.0-or-later
"""All-to-all with at most so many peers at a time; with one it is the pairwise exchange.

Thakur, Rabenseifner, Gropp (2005), section 4.4: in step i rank r sends to rank r + i and receives
from rank r - i (modulo N).
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from softroce_lab.workloads.flows import AllToAll
from softroce_lab.workloads.message import pieces
from softroce_lab.workloads.schedule import Schedule, Send


@dataclasses.dataclass(frozen=True)
class Exchange(AllToAll):
    """`size_bytes` for each peer. A rank begins step i when its step i - `peers` is over."""

    kind: ClassVar = "collective"
    operation: ClassVar = "all-to-all"

    peers: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.peers < 1:
            raise ValueError("an exchange has one peer at a time at least")

    @property
    def vector_bytes(self) -> int:
        """What nccl-tests counts: a rank's parts for all, its own included."""
        return self.hosts * self.size_bytes

    @property
    def bus_factor(self) -> float:
        """Of `vector_bytes`, the share that leaves a rank (nccl-tests)."""
        return (self.hosts - 1) / self.hosts

    @property
    def name(self) -> str:
        return "pairwise-all-to-all" if self.peers == 1 else "bounded-all-to-all"

    def schedule(self) -> Schedule:
        schedule = Schedule(self.ranks)
        steps: dict[tuple[int, int], list[int]] = {}  # (host, step) -> its sends and receives
        count = sum(1 for _ in pieces(self.size_bytes, self.message_bytes))
        for number, message in enumerate(self.messages()):
            step = number // count % (self.hosts - 1)
            for host in (message.source, message.destination):
                steps.setdefault((host, step), []).append(len(schedule.of[host]))
            schedule.transfer(message)
        for host in self.ranks:
            for step in range(self.peers, self.hosts - 1):
                over = schedule.compute(host, 0, tuple(steps[host, step - self.peers]))
                for index in steps[host, step]:
                    vertex = schedule.of[host][index]
                    if isinstance(vertex, Send):
                        vertex.requires = (over,)
        return schedule
