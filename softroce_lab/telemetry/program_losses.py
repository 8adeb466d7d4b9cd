# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads what an unmodified program's RNIC did about losses (native/endpoint/loss_record.hpp).

A file for each RNIC, which its process writes ten times a second. Times are CLOCK_MONOTONIC, in
nanoseconds.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.structs import Struct, enumerators

LOSS = np.dtype(Struct("LossRecord").dtype)
Losses: TypeAlias = npt.NDArray[np.void]  # of dtype LOSS, in the order of the process

KINDS = tuple(enumerators("LossKind"))
MESSAGE, RETRANSMIT, TIMEOUT, NAK_SENT, NAK_RECEIVED, LEFT_OUT = range(len(KINDS))
UNFINISHED = 255


def parse(data: bytes) -> Losses:
    """Whole records: the last one may be torn, because its writer was killed."""
    return np.frombuffer(data, LOSS, len(data) // LOSS.itemsize)
