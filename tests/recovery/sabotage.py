# SPDX-License-Identifier: GPL-2.0-or-later
"""Losses on the pair's cable that are chosen by what a packet says."""

from __future__ import annotations

from collections.abc import Callable

from softroce_lab import _native
from softroce_lab.recovery import control
from softroce_lab.recovery.api import Action, Control, Event
from softroce_lab.recovery.runner import PolicyRunner
from tests.recovery.pair_rig import CONTROL, PairRig


def rule(**fields: int) -> _native.DropRule:
    made = _native.DropRule()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def lose(rig: PairRig, side: int, **fields: int) -> None:
    """Packets from this side that match all these fields are lost."""
    cable = rig.cables[side]
    cable.rules = [*cable.rules, rule(**fields)]


class ControlLoss:
    """Loses the control messages of one side that match, at most so many; installed at the start.

    The cable knows them by their sequence numbers. Control messages leave before reports, in the
    order they were said, so each number is known when its message is said.
    """

    def __init__(
        self,
        rig: PairRig,
        side: int,
        matches: Callable[[control.Message], bool],
        most: int = 1 << 30,
    ) -> None:
        self._rig, self._side = rig, side
        self._matches, self._most = matches, most
        self._output = 0
        self.seen = 0
        self.lost: list[control.Message] = []
        end = rig.sides[side]
        end.runner = PolicyRunner(end.endpoint, end.policy, self._record)

    def _record(self, now_ns: int, event: Event, action: Action) -> None:
        if not isinstance(action, Control):
            return
        sequence = self._rig.counters(self._side)["tx_report"] + self._output
        self._output += 1
        message = control.decode(action.body)
        if not self._matches(message):
            return
        self.seen += 1
        if len(self.lost) < self._most:
            self.lost.append(message)
            lose(self._rig, self._side, kind=CONTROL, message=sequence)
