# SPDX-License-Identifier: GPL-2.0-or-later
"""Which receives belong together: those of one step of a collective operation, whoever sends them.

The host goes on when all of a step is here. So when most of it is complete the rest, the
*stragglers*, hold up the barrier. This project's definition (docs/protocols.md, section 1).
"""

from __future__ import annotations

import dataclasses

from softroce_lab.recovery.work import Receiving

_MOST = 3, 4  # of a group's messages, as numerator and denominator


@dataclasses.dataclass(slots=True)
class Group:
    """The receives of one step that have been posted so far."""

    posted: int = 0
    complete: int = 0
    waiting: dict[int, Receiving] = dataclasses.field(default_factory=dict)  # by handle
    hurried: bool = False  # those that waited when most was complete are informed

    @property
    def mostly_complete(self) -> bool:
        """Whether what is not complete straggles."""
        return self.complete * _MOST[1] >= self.posted * _MOST[0]


class Groups:
    """All groups of a host that wait for anything."""

    def __init__(self) -> None:
        self._groups: dict[tuple[int, int], Group] = {}

    def join(self, receive: Receiving) -> None:
        """A receive was posted."""
        group = self._groups.setdefault(receive.key[:2], Group())
        group.posted += 1
        group.waiting[receive.handle] = receive

    def leave(self, receive: Receiving) -> list[Receiving]:
        """A receive is over; returns those that straggle from now on, once for each group."""
        group = self._groups[receive.key[:2]]
        del group.waiting[receive.handle]
        group.complete += 1
        if not group.waiting:
            del self._groups[receive.key[:2]]
            return []
        if group.hurried or not group.mostly_complete:
            return []
        group.hurried = True
        return list(group.waiting.values())

    def straggles(self, receive: Receiving) -> bool:
        """Whether its step waits for this receive, and for few others."""
        group = self._groups.get(receive.key[:2])
        return group is not None and group.mostly_complete
