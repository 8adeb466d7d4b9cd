# SPDX-License-Identifier: GPL-2.0-or-later
"""Losses on the pair's cable that are chosen by what a packet says."""

from __future__ import annotations

from softroce_lab import _native
from tests.transports.pair_rig import CONTROL, PairRig


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
    """Loses the first control messages of one side: those of a type, or any."""

    def __init__(self, rig: PairRig, side: int, most: int, body: int = -1) -> None:
        """`body`: the type, as control.ACK."""
        self._cable, self._most = rig.cables[side], most
        self._place = len(self._cable.rules)
        lose(rig, side, kind=CONTROL, body=body, limit=most)

    @property
    def lost(self) -> int:
        """How many were."""
        return self._most - self._cable.rules[self._place].limit


def packets_sent(rig: PairRig, side: int) -> list[dict]:
    """What this side sent since `rig.pair.keep_sent()`, decoded."""
    frames = [frame for _, which, frame in rig.pair.take_sent() if which == side]
    return [_native.decode_frame(frame, True) for frame in frames]


def control_sent(rig: PairRig, body: int, side: int = 1) -> int:
    """Control messages of this type that this side sent since `rig.pair.keep_sent()`."""
    packets = packets_sent(rig, side)
    return sum(each["kind"] == CONTROL and each["payload"][0] == body for each in packets)
