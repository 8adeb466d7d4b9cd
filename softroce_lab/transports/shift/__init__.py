# SPDX-License-Identifier: GPL-2.0-or-later
"""SHIFT: reliable connections that go on over another NIC when theirs fails.

backup = Backup(context, other_context, store)
qp = ShiftQP(pd, init_attr, backup=backup)  # instead of QP(pd, init_attr)
"""

from softroce_lab.transports.shift.backup import Backup, Pump
from softroce_lab.transports.shift.protocol import (
    SEND_ONCE,
    Event,
    Path,
    Receiver,
    Sender,
    Settings,
)
from softroce_lab.transports.shift.qp import ShiftQP
from softroce_lab.transports.shift.store import (
    LocalStore,
    StoreServer,
    StoreUnreachableError,
    TcpStore,
)

__all__ = [
    "SEND_ONCE",
    "Backup",
    "Event",
    "LocalStore",
    "Path",
    "Pump",
    "Receiver",
    "Sender",
    "Settings",
    "ShiftQP",
    "StoreServer",
    "StoreUnreachableError",
    "TcpStore",
]
