# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of recovery.parquet, as both clocks record them (native/endpoint/recoveries.hpp)."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

EVENTS = (
    "retransmit", "sent_again", "lost", "timeout", "nak_sent", "nak_received", "nack_sent",
    "nack_received",
)  # fmt: skip
"""enum RecoveryKind."""
REASONS = ("timeout", "nak", "implied_nak", "rnr_nak", "policy", "informed")
"""enum RetransmitReason."""
NO_LINK = 2**32 - 1
MOST_RECORDS = 1 << 20  # kMostRecords: of a run; the others are counted

RECOVERY = np.dtype(
    [
        ("time_ns", "i8"),  # since the run began
        ("source", "u4"),  # of the packet: IPv4 address as a number; 0: not known
        ("destination", "u4"),
        ("host", "u4"),  # address of the one that acted
        ("message", "u4"),
        ("index", "u4"),
        ("last_index", "u4"),
        ("packets", "u4"),
        ("qpn", "u4"),  # the destination's; of what a queue pair did, its own
        ("psn", "u4"),
        ("last_psn", "u4"),
        ("link", "u4"),  # directed; NO_LINK: none
        ("operation", "u2"),
        ("step", "u2"),
        ("sport", "u2"),
        ("attempt", "u2"),
        ("event", "u1"),  # an index of EVENTS
        ("reason", "u1"),  # an index of REASONS
        ("cause", "u1"),  # of a loss, an index of `repairs.CAUSES`; of a transport's decision to
        # retransmit, an index of `_native.RETRANSMIT_CAUSES`
        ("packet_kind", "u1"),
    ]
)
Recoveries: TypeAlias = npt.NDArray[np.void]  # of dtype RECOVERY, in the order of time
