# SPDX-License-Identifier: GPL-2.0-or-later
"""Repairs of the simulated fabric (native/sim/repairs.hpp): lost packets, and when they were there.

A repair time is the time from the drop of a packet's first transmission until its payload is at the
receiver, by whichever transmission. This project's definition.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.structs import Struct, enumerators

CAUSES = tuple(name.replace("_", " ") for name in enumerators("sim::DropCause"))
REPAIR = np.dtype(Struct("sim::Repair").dtype)
Repairs: TypeAlias = npt.NDArray[np.void]  # of dtype REPAIR, in the order of the drops


def times_ns(repairs: Repairs) -> npt.NDArray[np.int64]:
    """Of those packets whose payload arrived."""
    here = repairs[repairs["arrived_ns"] >= 0]
    times: npt.NDArray[np.int64] = here["arrived_ns"] - here["dropped_ns"]
    return times
