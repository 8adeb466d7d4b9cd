# SPDX-License-Identifier: GPL-2.0-or-later
"""What cases are drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from softroce_lab.plan.effects import stream_key
from softroce_lab.workloads.streams import Stream

T = TypeVar("T")


class Dice:
    """What the drawing draws from."""

    def __init__(self, seed: int, what: str = "fuzz") -> None:
        self._stream = Stream(stream_key(seed, what))

    def below(self, bound: int) -> int:
        """0 to bound - 1."""
        return self._stream.below(bound)

    def between(self, low: int, high: int) -> int:
        """Low to high, both included."""
        return low + self.below(high - low + 1)

    def one(self, choices: Sequence[T]) -> T:
        """One of them."""
        return choices[self.below(len(choices))]

    def chance(self, percent: int) -> bool:
        """True so often."""
        return self.below(100) < percent

    def shuffled(self, things: Sequence[T]) -> list[T]:
        """All of them, in any order."""
        return [things[place] for place in self._stream.permutation(len(things))]
