# SPDX-License-Identifier: GPL-2.0-or-later
"""A connection's queue pair, in verbs' terms: (attributes, mask) for each transition.

As Linux's ib_cm_init_qp_attr() and cma_ib_init_qp_attr() have it.
"""

from __future__ import annotations

import errno

from softroce_lab.rdmacm.qp_attributes import QpAttributes
from softroce_lab.rdmacm.sidr import UDP_QKEY
from softroce_lab.rnic.addr import GID, AHAttr, GlobalRoute
from softroce_lab.rnic.enums import (
    IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_QPS_INIT,
    IBV_QPS_RTR,
    IBV_QPS_RTS,
    IBV_QPT_RC,
    IBV_QPT_UC,
    IBV_QPT_UD,
)
from softroce_lab.rnic.errors import PyverbsRDMAError
from softroce_lab.rnic.qp import QPAttr, transition_mask


def address_attr(
    gid: GID,
    flow_label: int = 0,
    traffic_class: int = 0,
    hop_limit: int = 64,
    sgid_index: int = 0,
) -> AHAttr:
    """What an address handle to a GID is made of."""
    way = GlobalRoute(
        dgid=gid,
        flow_label=flow_label,
        sgid_index=sgid_index,
        hop_limit=hop_limit,
        traffic_class=traffic_class,
    )
    return AHAttr(is_global=1, gr=way)


def connection_attributes(
    known: QpAttributes, state: int, sgid_index: int = 0
) -> tuple[QPAttr, int]:
    """(attributes, which of them) that a transition of a connection's queue pair needs."""
    attr = QPAttr()
    attr.qp_state = state
    if state == IBV_QPS_INIT:
        attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE
        if known.serves_reads:
            attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
    elif state == IBV_QPS_RTR:
        gid = GID(str(known.remote_gid))
        way = (known.flow_label, known.traffic_class, known.hop_limit)
        attr.ah_attr = address_attr(gid, *way, sgid_index)
        attr.path_mtu, attr.dest_qp_num = known.path_mtu, known.dest_qp_num
        attr.rq_psn = known.rq_psn
        attr.max_dest_rd_atomic = known.max_dest_rd_atomic
        attr.min_rnr_timer = known.min_rnr_timer
    elif state == IBV_QPS_RTS:
        attr.sq_psn = known.sq_psn
        attr.timeout, attr.retry_cnt = known.timeout, known.retry_cnt
        attr.rnr_retry, attr.max_rd_atomic = known.rnr_retry, known.max_rd_atomic
    return attr, _mask(IBV_QPT_RC if known.reliable else IBV_QPT_UC, state)


def datagram_attributes(state: int) -> tuple[QPAttr, int]:
    """(attributes, which of them) that a transition of a datagram queue pair needs."""
    attr = QPAttr()
    attr.qp_state = state
    attr.qkey = UDP_QKEY
    return attr, _mask(IBV_QPT_UD, state)


def _mask(qp_type: int, state: int) -> int:
    try:
        return transition_mask(qp_type, state)
    except KeyError:
        raise PyverbsRDMAError("Failed to get QP attributes", errno.EINVAL) from None
