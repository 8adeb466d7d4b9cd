# SPDX-License-Identifier: GPL-2.0-or-later
"""Three ways to meet the same failure, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softroce_lab import units
from softroce_lab.learn.failover.machine import STEPS, Way
from softroce_lab.learn.failover.run import Seen, run
from softroce_lab.learn.failover.scene import Scene
from softroce_lab.shift.classes import classify


class RepeatsAll:
    """Posts everything again, and asks nobody."""

    def on_failure(self, _: int) -> Sequence[str]:
        """In the right order."""
        return STEPS

    def on_move(
        self, _: int, unfinished: Sequence[Any], __: int
    ) -> tuple[Sequence[int], Sequence[int] | None]:
        """Nothing is done, whatever the peer counts."""
        return [], range(len(unfinished))


class Shift(RepeatsAll):
    """By SHIFT's classes."""

    def on_move(
        self, _: int, unfinished: Sequence[Any], executed: int
    ) -> tuple[Sequence[int], Sequence[int] | None]:
        """What the peer counts is done; the rest is posted again, if it may be."""
        classes = classify(unfinished, executed)
        done = len(classes.consumed)
        if classes.culprit is None:
            return range(done), range(done, len(unfinished))
        lost = any(each is classes.culprit for each in classes.consumed)
        return range(0 if lost else done), None


def side_by_side(scene: Scene) -> dict[str, Seen]:
    """What came of each way, by its name."""
    ways: dict[str, Way | None] = {"no backup": None, "repeat all": RepeatsAll(), "SHIFT": Shift()}
    return {name: run(scene, way, with_backup=way is not None) for name, way in ways.items()}


def rows(found: dict[str, Seen], scene: Scene) -> list[tuple[str, list[str]]]:
    """A table: a row's name, and a cell for each way."""
    count = len(scene.requests)
    notifying = sum(each.notifies for each in scene.requests)
    seen = list(found.values())
    table = [
        ("requests that ended well", [f"{each.succeeded} of {count}" for each in seen]),
        ("notifications at h2", [f"{len(each.notified)} of {notifying}" for each in seen]),
        ("notified twice", [str(each.twice) for each in seen]),
        ("memory wrong", [str(sum("memory" in text for text in each.wrong)) for each in seen]),
        ("detected after", [_time(each.detected_ns) for each in seen]),
        ("first good completion after that", [_time(each.gap_ns) for each in seen]),
        ("called done", [str(each.consumed) for each in seen]),
        ("posted again", [str(each.resubmitted) for each in seen]),
    ]
    if any(each.kind == "ADD" for each in scene.requests):
        table.insert(3, ("additions executed", [str(each.added) for each in seen]))
    return table


def _time(ns: int | None) -> str:
    return "-" if ns is None else units.format_duration(ns)
