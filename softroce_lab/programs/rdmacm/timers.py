# SPDX-License-Identifier: GPL-2.0-or-later
"""Timers of ids; one per id."""

from __future__ import annotations

import heapq


class Timers:
    """Times by id, and the earliest of them."""

    def __init__(self) -> None:
        self._due_ns: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []  # what is no more in `_due_ns` is void

    def set(self, comm_id: int, due_ns: int | None) -> None:
        """Set the timer of an id to this time; None: cancel it."""
        if due_ns is None:
            self._due_ns.pop(comm_id, None)
        elif self._due_ns.get(comm_id) != due_ns:
            self._due_ns[comm_id] = due_ns
            heapq.heappush(self._heap, (due_ns, comm_id))

    @property
    def next_ns(self) -> int | None:
        """The earliest time; None if there is none."""
        while self._heap and self._due_ns.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now_ns: int) -> int | None:
        """An id whose time has come; its time is over with that."""
        due_ns = self.next_ns
        if due_ns is None or due_ns > now_ns:
            return None
        comm_id = heapq.heappop(self._heap)[1]
        del self._due_ns[comm_id]
        return comm_id

    def __len__(self) -> int:
        return len(self._heap)
