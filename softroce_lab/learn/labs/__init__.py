# SPDX-License-Identifier: GPL-2.0-or-later
"""The series of labs. Each module here is a lab; its texts are in `content/`."""

from __future__ import annotations

from softroce_lab.errors import UserError
from softroce_lab.learn.lab import Lab
from softroce_lab.learn.labs import (
    failover,
    go_back_n,
    incast,
    long_haul,
    lost_tail,
    parity,
    paths,
    sack,
)

_LABS = (
    go_back_n.LAB, lost_tail.LAB, sack.LAB, paths.LAB, incast.LAB, long_haul.LAB, failover.LAB,
    parity.LAB,
)  # fmt: skip
SERIES: dict[int, Lab] = {lab.number: lab for lab in _LABS}


def find(number: int) -> Lab:
    """A lab by its number. UserError if there is none."""
    if number not in SERIES:
        known = ", ".join(map(str, SERIES))
        raise UserError(f"there is no lab {number}", hint=f"the labs: {known}")
    return SERIES[number]
