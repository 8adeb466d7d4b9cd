# SPDX-License-Identifier: GPL-2.0-or-later
"""Removing what dead `up`s, dead `down`s and dead owners left; nothing else."""

from __future__ import annotations

import dataclasses

from softroce_lab.errors import LabError
from softroce_lab.fabric import runtime
from softroce_lab.fabric.ledger.removal import Say
from softroce_lab.fabric.room import needing_room
from softroce_lab.fabric.runtime import Condition


@dataclasses.dataclass(frozen=True, slots=True)
class Collection:
    """What `collect` did."""

    removed: list[Condition] = dataclasses.field(default_factory=list)
    failures: list[LabError] = dataclasses.field(default_factory=list)  # why others stayed


def remains() -> list[Condition]:
    """What `collect` would remove."""
    return [condition for condition in runtime.labs() if condition.remains]


def collect(say: Say) -> Collection:
    """Remove the remains of all labs. What cannot be read is left unchanged, and reported."""
    collection = Collection()
    for condition in runtime.labs():
        if condition.unreadable is not None:
            say(f"left alone: {condition.unreadable.what}")
        elif condition.remains:
            _sweep(condition, say, collection)
    return collection


def _sweep(condition: Condition, say: Say, collection: Collection) -> None:
    try:
        with needing_room(runtime.DIRECTORY):
            runtime.sweep(condition, say)
        collection.removed.append(condition)
    except LabError as error:
        collection.failures.append(error)
