# SPDX-License-Identifier: GPL-2.0-or-later
"""Verbs: the Python face of the RNIC, in pyverbs' names, argument order and defaults.

The enums are in `softroce_lab.verbs.enums`, in C spelling. Striped messages are the lab's own.
"""

from softroce_lab.verbs import enums
from softroce_lab.verbs.addr import AH, GRH_BYTES, AHAttr, GlobalRoute
from softroce_lab.verbs.cq import CQ, WC, CompChannel, ModerateCQ, ModifyCQAttr
from softroce_lab.verbs.device import (
    GID,
    AsyncEvent,
    Context,
    Device,
    DeviceAttr,
    GIDEntry,
    PortAttr,
    get_device_list,
)
from softroce_lab.verbs.message import MessageEndpoint, Peer
from softroce_lab.verbs.mr import MR
from softroce_lab.verbs.pd import PD
from softroce_lab.verbs.pyverbs_error import PyverbsError, PyverbsRDMAError, PyverbsUserError
from softroce_lab.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softroce_lab.verbs.srq import SRQ, SrqAttr, SrqInitAttr
from softroce_lab.verbs.wr import SGE, RecvWR, SendWR

__all__ = [
    "AH",
    "CQ",
    "GID",
    "GRH_BYTES",
    "MR",
    "PD",
    "QP",
    "SGE",
    "SRQ",
    "WC",
    "AHAttr",
    "AsyncEvent",
    "CompChannel",
    "Context",
    "Device",
    "DeviceAttr",
    "GIDEntry",
    "GlobalRoute",
    "MessageEndpoint",
    "ModerateCQ",
    "ModifyCQAttr",
    "Peer",
    "PortAttr",
    "PyverbsError",
    "PyverbsRDMAError",
    "PyverbsUserError",
    "QPAttr",
    "QPCap",
    "QPInitAttr",
    "RecvWR",
    "SendWR",
    "SrqAttr",
    "SrqInitAttr",
    "enums",
    "get_device_list",
]
