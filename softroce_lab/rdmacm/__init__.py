# SPDX-License-Identifier: GPL-2.0-or-later
"""RDMA CM: connections and UD peers found through MADs, compatible with Linux's rdma_cm.

A `CmAgent` serves the port of a context; `CMID` and its kin are pyverbs'. Below them is
`manager.ConnectionManager`, the state machine without I/O.
"""

from softroce_lab.rdmacm.addrinfo import AddrInfo, ConnParam, rdma_addrinfo_flags
from softroce_lab.rdmacm.agent import CmAgent
from softroce_lab.rdmacm.channel import CMEvent, CMEventChannel, UDParam
from softroce_lab.rdmacm.cmid import CMID, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT
from softroce_lab.rdmacm.events import rdma_cm_event_type
from softroce_lab.rdmacm.messages import RejectReason
from softroce_lab.rdmacm.service import rdma_port_space
from softroce_lab.rdmacm.settings import CmTiming

__all__ = [
    "CMID",
    "RDMA_OPTION_ID",
    "RDMA_OPTION_ID_ACK_TIMEOUT",
    "AddrInfo",
    "CMEvent",
    "CMEventChannel",
    "CmAgent",
    "CmTiming",
    "ConnParam",
    "RejectReason",
    "UDParam",
    "rdma_addrinfo_flags",
    "rdma_cm_event_type",
    "rdma_port_space",
]
