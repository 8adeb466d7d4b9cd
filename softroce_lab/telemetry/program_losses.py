# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads what an unmodified program's RNIC did about losses (native/verbs/loss_log.hpp).

A file a process, which it writes ten times a second. Times are CLOCK_MONOTONIC, in nanoseconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

LOSS = np.dtype(
    [
        ("at_ns", "i8"),  # of a message: when it completed
        ("posted_ns", "i8"),
        ("sent_ns", "i8"),  # all of its packets had left once; 0: not yet, its PSNs are not known
        ("bytes", "u8"),
        ("number", "u8"),  # of a message: how many its queue pair had before
        ("remote_high", "u8"),  # GID of the queue pair's peer
        ("remote_low", "u8"),
        ("qp", "u4"),
        ("remote_qp", "u4"),
        ("psn", "u4"),
        ("last_psn", "u4"),
        ("kind", "u1"),  # an index of KINDS
        ("code", "u1"),  # of a message: ibv_wc_status or UNFINISHED; of `retransmit`: the reason
        ("opcode", "u1"),  # of a message: ibv_wr_opcode
        ("unused", "V5"),
    ]
)
Losses: TypeAlias = npt.NDArray[np.void]  # of dtype LOSS, in the order of the process

KINDS = ("message", "retransmit", "timeout", "nak_sent", "nak_received", "left_out")
"""enum LossKind."""
MESSAGE, RETRANSMIT, TIMEOUT, NAK_SENT, NAK_RECEIVED, LEFT_OUT = range(len(KINDS))
UNFINISHED = 255


def read(path: Path) -> Losses:
    """Whole records: the last one may be torn, because its writer was killed. OSError."""
    data = path.read_bytes()
    return np.frombuffer(data, LOSS, len(data) // LOSS.itemsize)
