# SPDX-License-Identifier: GPL-2.0-or-later
"""Removing what dead `up`s, dead `down`s and dead owners left; nothing else."""

from __future__ import annotations

from softroce_lab.fabric import runtime
from softroce_lab.fabric.removal import Say
from softroce_lab.fabric.runtime import Condition


def remains() -> list[Condition]:
    """What `collect` would remove."""
    return [condition for condition in runtime.labs() if condition.remains]


def collect(say: Say) -> list[Condition]:
    """Remove the remains of all labs; which these were."""
    found = remains()
    for condition in found:
        runtime.sweep(condition, say)
    return found
