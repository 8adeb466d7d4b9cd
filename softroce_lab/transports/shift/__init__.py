# SPDX-License-Identifier: GPL-2.0-or-later
"""SHIFT: reliable connections that go on over another NIC when theirs fails.

backup = Backup(context, other_context, store)
qp = ShiftQP(pd, init_attr, backup=backup)  # instead of QP(pd, init_attr)

What a failover does is written in native/shift; here it has the face of the verbs.
"""

from softroce_lab._native import shift
from softroce_lab.transports.shift.backup import Backup, Pump
from softroce_lab.transports.shift.event import SEND_ONCE, Event
from softroce_lab.transports.shift.qp import ShiftQP
from softroce_lab.transports.shift.store import (
    LocalStore,
    StoreServer,
    StoreUnreachableError,
    TcpStore,
)

Sender = shift.Sender
Settings = shift.Settings

__all__ = [
    "SEND_ONCE",
    "Backup",
    "Event",
    "LocalStore",
    "Pump",
    "Sender",
    "Settings",
    "ShiftQP",
    "StoreServer",
    "StoreUnreachableError",
    "TcpStore",
]
