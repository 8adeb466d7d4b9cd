# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of recovery.parquet, as both clocks record them (native/endpoint/recoveries.hpp)."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.structs import Struct, enumerators

EVENTS = tuple(enumerators("RecoveryKind"))
REASONS = tuple(enumerators("RetransmitReason"))
PARITY_REASONS = tuple(enumerators("ParityReason"))
NO_LINK = 2**32 - 1
MOST_RECORDS = 1 << 20  # kMostRecords: of a run; the others are counted

RECOVERY = np.dtype(Struct("Recovery").dtype)
Recoveries: TypeAlias = npt.NDArray[np.void]  # of dtype RECOVERY, in the order of time
