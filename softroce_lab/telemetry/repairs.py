# SPDX-License-Identifier: GPL-2.0-or-later
"""Repairs of the simulated fabric (native/sim/repairs.hpp): lost packets, and when they were there.

A repair time is the time from the drop of a packet's first transmission until its payload is at the
receiver, by whichever transmission. This project's definition.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

CAUSES = ("rule", "link down", "full queue", "trimmed", "corrupted", "no route")  # enum DropCause

REPAIR = np.dtype(
    [
        ("dropped_ns", "i8"),  # since the run began
        ("arrived_ns", "i8"),  # -1: never
        ("source", "u4"),  # IPv4 address as a number
        ("destination", "u4"),
        ("message", "u4"),  # this and index, operation, step: of striped messages
        ("index", "u4"),
        ("qpn", "u4"),  # this and psn: of queue pairs of RC
        ("psn", "u4"),
        ("operation", "u2"),
        ("step", "u2"),
        ("cause", "u1"),  # an index of CAUSES
        ("unused", "V3"),
    ]
)
Repairs: TypeAlias = npt.NDArray[np.void]  # of dtype REPAIR, in the order of the drops


def times_ns(repairs: Repairs) -> npt.NDArray[np.int64]:
    """Of those packets whose payload arrived."""
    here = repairs[repairs["arrived_ns"] >= 0]
    times: npt.NDArray[np.int64] = here["arrived_ns"] - here["dropped_ns"]
    return times
