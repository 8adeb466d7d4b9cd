# SPDX-License-Identifier: GPL-2.0-or-later
"""Random changes of a lab's faults, as a user makes them by `lab fault set` and `clear`."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Self

from softroce_lab.errors import UserError
from softroce_lab.fabric.lab import Lab
from softroce_lab.faults import live
from softroce_lab.faults.resolve import links_of
from softroce_lab.plan.plan import Plan

_LOSSES = (
    "loss random {percent}%",
    "loss gemodel {percent}% 30%",
    "loss gemodel {percent}% 30% 70% 0.1%",
    "loss burst {percent}% 4",
    "loss periodic 50",
    "drop tail 1 iter 1",
    "drop iter 1 only probe",
    "drop message {number} packet {number} iter 1",
    "corrupt {percent}%",
)
_SHAPES = (
    "duplicate {percent}%",
    "delay {us}us",
    "delay {us}us {jitter}us",
    "delay {us}us {jitter}us distribution pareto reorder allow",
    "delay {us}us reorder {percent}%",
)
_EFFECTS = (
    *_LOSSES,
    *_SHAPES,
    "rate {mbit}Mbit limit {number}",
    "rate {mbit}Mbit limit 64KiB ecn 16KiB",
)
_MAY_DIE = "spine1"  # its links only go down, or two of them would cut the lab in two
_CLEARED = ("loss", "drop", "corrupt", "duplicate", "delay", "rate", "down")


class DrawnFaults(threading.Thread):
    """Makes changes on random links until it is told to stop, or made `most`."""

    def __init__(self, lab: Lab, chance: random.Random, most: int, interval_s: float) -> None:
        super().__init__(name="drawn-faults")
        self.made = self.refused = 0
        self.failure: BaseException | None = None
        self._lab, self._chance, self._most, self._interval_s = lab, chance, most, interval_s
        self._stop_asked = threading.Event()
        self._hosts = {node.name for node in lab.plan.hosts}
        self._halves = [
            (near.node, far.node) for link in lab.plan.links for _, near, far in link.halves
        ]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_asked.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def run(self) -> None:
        """Change until then; what goes wrong is kept."""
        try:
            while self.made < self._most and not self._stop_asked.wait(self._interval_s):
                self.made += 1
                self._change()
        except BaseException as error:
            self.failure = error

    def _change(self) -> None:
        near, far = self._chance.choice(self._halves)
        link = f"{near}->{far}"
        if self._chance.random() < 0.35:
            words = self._chance.choice([None, [self._chance.choice(_CLEARED)]])
            cleared = None if words is None else live.parse_cleared(words)
            self._alter(lambda plan: live.clear_on(plan, links_of(plan, link), cleared))
        else:
            wanted = live.parse_impairments(self._words(near, far).split())
            self._alter(lambda plan: live.set_on(plan, links_of(plan, link), wanted))

    def _alter(self, alter: Callable[[Plan], Plan]) -> None:
        try:
            self._lab.faults.change(alter, time.monotonic_ns)
        except UserError:
            self.refused += 1  # it contradicts what is there: nothing changes

    def _words(self, near: str, far: str) -> str:
        if self._chance.random() < 0.15 and _MAY_DIE in (near, far):
            return "down"
        return self._chance.choice(_EFFECTS).format(
            percent=round(self._chance.uniform(0.1, 3), 2),
            us=self._chance.randint(10, 2000),
            jitter=self._chance.randint(1, 10),
            number=self._chance.randint(20, 200),
            mbit=self._chance.randint(200, 2000),
        )
