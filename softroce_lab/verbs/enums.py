# SPDX-License-Identifier: GPL-2.0-or-later
"""Enums of rdma-core's verbs.h, names and values as in C; members can be imported by name.

What the RNIC does not have is here all the same, so that asking for it is refused by the RNIC.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from softroce_lab.errors import ibv_wc_status


class ibv_access_flags(enum.IntFlag):  # noqa: N801 - the C name, as pyverbs has it
    """What a memory region or a queue pair allows."""

    IBV_ACCESS_LOCAL_WRITE = 1
    IBV_ACCESS_REMOTE_WRITE = 1 << 1
    IBV_ACCESS_REMOTE_READ = 1 << 2
    IBV_ACCESS_REMOTE_ATOMIC = 1 << 3
    IBV_ACCESS_MW_BIND = 1 << 4
    IBV_ACCESS_ZERO_BASED = 1 << 5
    IBV_ACCESS_ON_DEMAND = 1 << 6
    IBV_ACCESS_HUGETLB = 1 << 7
    IBV_ACCESS_RELAXED_ORDERING = 1 << 20


class ibv_qp_type(enum.IntEnum):  # noqa: N801
    """Transport service of a queue pair."""

    IBV_QPT_RC = 2
    IBV_QPT_UC = 3
    IBV_QPT_UD = 4
    IBV_QPT_RAW_PACKET = 8
    IBV_QPT_XRC_SEND = 9
    IBV_QPT_XRC_RECV = 10
    IBV_QPT_DRIVER = 0xFF


class ibv_qp_state(enum.IntEnum):  # noqa: N801
    """States of a queue pair (IBA 10.3.1)."""

    IBV_QPS_RESET = 0
    IBV_QPS_INIT = 1
    IBV_QPS_RTR = 2
    IBV_QPS_RTS = 3
    IBV_QPS_SQD = 4
    IBV_QPS_SQE = 5
    IBV_QPS_ERR = 6
    IBV_QPS_UNKNOWN = 7


class ibv_qp_attr_mask(enum.IntFlag):  # noqa: N801
    """Which attributes a modification of a queue pair sets."""

    IBV_QP_STATE = 1 << 0
    IBV_QP_CUR_STATE = 1 << 1
    IBV_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2
    IBV_QP_ACCESS_FLAGS = 1 << 3
    IBV_QP_PKEY_INDEX = 1 << 4
    IBV_QP_PORT = 1 << 5
    IBV_QP_QKEY = 1 << 6
    IBV_QP_AV = 1 << 7
    IBV_QP_PATH_MTU = 1 << 8
    IBV_QP_TIMEOUT = 1 << 9
    IBV_QP_RETRY_CNT = 1 << 10
    IBV_QP_RNR_RETRY = 1 << 11
    IBV_QP_RQ_PSN = 1 << 12
    IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13
    IBV_QP_ALT_PATH = 1 << 14
    IBV_QP_MIN_RNR_TIMER = 1 << 15
    IBV_QP_SQ_PSN = 1 << 16
    IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17
    IBV_QP_PATH_MIG_STATE = 1 << 18
    IBV_QP_CAP = 1 << 19
    IBV_QP_DEST_QPN = 1 << 20
    IBV_QP_RATE_LIMIT = 1 << 25


class ibv_mig_state(enum.IntEnum):  # noqa: N801
    """Automatic path migration, which is not there."""

    IBV_MIG_MIGRATED = 0
    IBV_MIG_REARM = 1
    IBV_MIG_ARMED = 2


class ibv_mtu(enum.IntEnum):  # noqa: N801
    """Path MTU, bytes in the name."""

    IBV_MTU_256 = 1
    IBV_MTU_512 = 2
    IBV_MTU_1024 = 3
    IBV_MTU_2048 = 4
    IBV_MTU_4096 = 5


class ibv_wr_opcode(enum.IntEnum):  # noqa: N801
    """What a send work request asks for."""

    IBV_WR_RDMA_WRITE = 0
    IBV_WR_RDMA_WRITE_WITH_IMM = 1
    IBV_WR_SEND = 2
    IBV_WR_SEND_WITH_IMM = 3
    IBV_WR_RDMA_READ = 4
    IBV_WR_ATOMIC_CMP_AND_SWP = 5
    IBV_WR_ATOMIC_FETCH_AND_ADD = 6
    IBV_WR_LOCAL_INV = 7
    IBV_WR_BIND_MW = 8
    IBV_WR_SEND_WITH_INV = 9
    IBV_WR_TSO = 10
    IBV_WR_DRIVER1 = 11


class ibv_send_flags(enum.IntFlag):  # noqa: N801
    """How a send work request is to be treated."""

    IBV_SEND_FENCE = 1
    IBV_SEND_SIGNALED = 1 << 1
    IBV_SEND_SOLICITED = 1 << 2
    IBV_SEND_INLINE = 1 << 3
    IBV_SEND_IP_CSUM = 1 << 4


class ibv_wc_opcode(enum.IntEnum):  # noqa: N801
    """What completed."""

    IBV_WC_SEND = 0
    IBV_WC_RDMA_WRITE = 1
    IBV_WC_RDMA_READ = 2
    IBV_WC_COMP_SWAP = 3
    IBV_WC_FETCH_ADD = 4
    IBV_WC_BIND_MW = 5
    IBV_WC_LOCAL_INV = 6
    IBV_WC_TSO = 7
    IBV_WC_RECV = 128
    IBV_WC_RECV_RDMA_WITH_IMM = 129


class ibv_wc_flags(enum.IntFlag):  # noqa: N801
    """What a completion carries."""

    IBV_WC_GRH = 1
    IBV_WC_WITH_IMM = 1 << 1
    IBV_WC_IP_CSUM_OK = 1 << 2
    IBV_WC_WITH_INV = 1 << 3


class ibv_srq_attr_mask(enum.IntFlag):  # noqa: N801
    """Which attributes a modification of a shared receive queue sets."""

    IBV_SRQ_MAX_WR = 1
    IBV_SRQ_LIMIT = 1 << 1


class ibv_cq_attr_mask(enum.IntFlag):  # noqa: N801
    """Which attributes a modification of a completion queue sets."""

    IBV_CQ_ATTR_MODERATE = 1


class ibv_event_type(enum.IntEnum):  # noqa: N801
    """Asynchronous events (IBA 11.6.3)."""

    IBV_EVENT_CQ_ERR = 0
    IBV_EVENT_QP_FATAL = 1
    IBV_EVENT_QP_REQ_ERR = 2
    IBV_EVENT_QP_ACCESS_ERR = 3
    IBV_EVENT_COMM_EST = 4
    IBV_EVENT_SQ_DRAINED = 5
    IBV_EVENT_PATH_MIG = 6
    IBV_EVENT_PATH_MIG_ERR = 7
    IBV_EVENT_DEVICE_FATAL = 8
    IBV_EVENT_PORT_ACTIVE = 9
    IBV_EVENT_PORT_ERR = 10
    IBV_EVENT_LID_CHANGE = 11
    IBV_EVENT_PKEY_CHANGE = 12
    IBV_EVENT_SM_CHANGE = 13
    IBV_EVENT_SRQ_ERR = 14
    IBV_EVENT_SRQ_LIMIT_REACHED = 15
    IBV_EVENT_QP_LAST_WQE_REACHED = 16
    IBV_EVENT_CLIENT_REREGISTER = 17
    IBV_EVENT_GID_CHANGE = 18
    IBV_EVENT_WQ_FATAL = 19


class ibv_port_state(enum.IntEnum):  # noqa: N801
    """Logical state of a port."""

    IBV_PORT_NOP = 0
    IBV_PORT_DOWN = 1
    IBV_PORT_INIT = 2
    IBV_PORT_ARMED = 3
    IBV_PORT_ACTIVE = 4
    IBV_PORT_ACTIVE_DEFER = 5


class ibv_atomic_cap(enum.IntEnum):  # noqa: N801
    """Among whom atomics are atomic."""

    IBV_ATOMIC_NONE = 0
    IBV_ATOMIC_HCA = 1
    IBV_ATOMIC_GLOB = 2


class ibv_gid_type(enum.IntEnum):  # noqa: N801
    """The format of a GID's packets."""

    IBV_GID_TYPE_IB = 0
    IBV_GID_TYPE_ROCE_V1 = 1
    IBV_GID_TYPE_ROCE_V2 = 2


class ibv_link_layer(enum.IntEnum):  # noqa: N801
    """What the port is plugged into."""

    IBV_LINK_LAYER_UNSPECIFIED = 0
    IBV_LINK_LAYER_INFINIBAND = 1
    IBV_LINK_LAYER_ETHERNET = 2


# All members by their names alone, as C has them.
for _kind in [ibv_wc_status, *vars().values()]:
    if isinstance(_kind, type) and issubclass(_kind, enum.IntEnum | enum.IntFlag):
        globals().update(_kind.__members__)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
