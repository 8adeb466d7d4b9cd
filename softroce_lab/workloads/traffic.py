# SPDX-License-Identifier: GPL-2.0-or-later
"""Who sends how much to whom, and when, as far as that is known before a run."""

from __future__ import annotations

import dataclasses

from softroce_lab.workloads.graph import Graph
from softroce_lab.workloads.schedule import Send
from softroce_lab.workloads.work import Workload


@dataclasses.dataclass(slots=True)
class Flow:
    """All messages from one host to another."""

    source: int
    destination: int
    messages: int = 0
    bytes: int = 0
    first_round: int = 0
    last_round: int = 0
    not_before_ns: int = 0  # of the first message

    def add(self, length_bytes: int, round_: int, at_ns: int) -> None:
        """A message, of a round: so many must be sent one after the other, itself included."""
        if not self.messages:
            self.first_round, self.not_before_ns = round_, at_ns
        self.first_round = min(self.first_round, round_)
        self.last_round = max(self.last_round, round_)
        self.messages += 1
        self.bytes += length_bytes


def flows(workload: Workload) -> list[Flow]:
    """All pairs of hosts with messages, in the order of ranks, then of their first message."""
    schedule = workload.schedule()
    rounds = Graph.of(schedule, in_order=False).rounds(schedule)
    found: dict[tuple[int, int], Flow] = {}
    for host, vertices in schedule.of.items():
        for vertex in vertices:
            if isinstance(vertex, Send):
                message = vertex.message
                pair = host, message.destination
                flow = found.setdefault(pair, Flow(*pair))
                flow.add(message.length_bytes, rounds[(*pair, message.key)], vertex.at_ns)
    return list(found.values())
