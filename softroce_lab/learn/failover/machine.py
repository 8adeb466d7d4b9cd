# SPDX-License-Identifier: GPL-2.0-or-later
"""Who decides a ShiftQP's failover, and what was decided (native/shift/stepped_machine.hpp)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from softroce_lab._native import shift

if TYPE_CHECKING:
    from softroce_lab._native.shift import UnfinishedSend

STEPS = ("stop", "receives", "move")


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about the requests in flight, by number, and what is right."""

    at_ns: int
    requests: tuple[int, ...]  # in flight, in their order
    executed: int  # notifications that the peer counts
    done: tuple[int, ...]
    again: tuple[int, ...] | None  # None: the failure surfaces
    right: tuple[int, ...]  # what is known to be done
    culprit: int | None  # the first that may be neither called done nor repeated


class Way(Protocol):
    """Who decides. `on_move` names requests by their places among the unfinished ones."""

    def on_failure(self, host: int) -> Sequence[str]:
        """The steps, in their order."""

    def on_move(
        self, host: int, unfinished: Sequence[Any], executed: int
    ) -> tuple[Sequence[int], Sequence[int] | None]:
        """Places of what is done, and of what is posted again, in that order."""


class World(Protocol):
    """What a machine needs of the run around it."""

    way: Way

    def count_notifications(self, host: int) -> int:
        """How many notifications the application has taken."""

    def deliver_late(self, host: int) -> None:
        """Let the network deliver what it held, after a step of this host."""

    def note(self, host: int, text: str, at_ns: int | None = None) -> None:
        """Write down what happens."""

    def break_off(self, error: Exception) -> None:
        """Keep the way's exception."""


class Asker:
    """What a machine asks. `decisions` lists what was decided.

    A native queue pair holds this, which therefore must not lead back to it.
    """

    def __init__(self, world: World, host: int) -> None:
        self._world, self._host = world, host
        self.decisions: list[Decision] = []

    def order_steps(self) -> list[str] | None:
        try:
            return list(self._world.way.on_failure(self._host))
        except Exception as error:
            self._world.break_off(error)
            return None

    def divide(
        self, unfinished: list[UnfinishedSend], executed: int, now_ns: int
    ) -> tuple[list[int], list[int] | None] | None:
        """Places of what is done and of what is posted again; None: the way has failed."""
        try:
            done, again = self._world.way.on_move(self._host, unfinished, executed)
        except Exception as error:
            self._world.break_off(error)
            return None
        numbers = tuple(each.request.wr_id for each in unfinished)
        right, _, culprit = shift.classify(unfinished, executed)
        made = Decision(
            now_ns,
            numbers,
            executed,
            tuple(numbers[place] for place in done),
            None if again is None else tuple(numbers[place] for place in again),
            tuple(numbers[place] for place in right),
            None if culprit is None else numbers[culprit],
        )
        self.decisions.append(made)
        return list(done), None if again is None else list(again)

    def notifications_taken(self) -> int:
        return self._world.count_notifications(self._host)

    def step_done(self) -> None:
        self._world.deliver_late(self._host)

    def write_down(self, text: str, now_ns: int) -> None:
        self._world.note(self._host, text, now_ns)
