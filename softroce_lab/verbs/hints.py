# SPDX-License-Identifier: GPL-2.0-or-later
"""Why a verb answers EINVAL or ENOMEM, where rdma-core leaves one to guess."""

from __future__ import annotations

import errno

from softroce_lab.verbs.enums import (
    IBV_QPS_INIT,
    IBV_QPS_RESET,
    IBV_QPS_RTR,
    IBV_QPS_RTS,
    IBV_QPT_RC,
    IBV_QPT_UC,
    ibv_qp_state,
)
from softroce_lab.verbs.qp_attr import QPAttr

_CLOSED = "the QP is closed"
_BEFORE = {IBV_QPS_INIT: IBV_QPS_RESET, IBV_QPS_RTR: IBV_QPS_INIT, IBV_QPS_RTS: IBV_QPS_RTR}


def of_step(
    rc: int, qp_type: int, now: ibv_qp_state, wanted: ibv_qp_state, attr: QPAttr
) -> str | None:
    """Why a queue pair does not go to INIT, RTR or RTS; None: for an attribute out of range."""
    if rc != errno.EINVAL:
        return None
    if now != _BEFORE[wanted] and not now == wanted == IBV_QPS_INIT:
        return f"the QP is in {now.name}"
    if wanted == IBV_QPS_RTR and qp_type in (IBV_QPT_RC, IBV_QPT_UC) and not attr.ah_attr.is_global:
        return (
            "ah_attr leads nowhere; a peer is reached by "
            "QPAttr(ah_attr=AHAttr(is_global=1, gr=GlobalRoute(dgid=...)), dest_qp_num=...)"
        )
    return None


def of_post_send(rc: int, state: ibv_qp_state | None, depth: int) -> str | None:
    """Why a request is not taken; None: for what its error names. A closed QP has no state."""
    if state is None:
        return _CLOSED
    if rc == errno.ENOMEM:
        return _full(depth, "max_send_wr")
    if rc == errno.EINVAL and state < IBV_QPS_RTS:
        return f"the QP is in {state.name}; it sends from IBV_QPS_RTS on: to_rts(...)"
    return None


def of_post_recv(rc: int, state: ibv_qp_state | None, depth: int, *, shared: bool) -> str | None:
    """Why a receive is not taken; None: for what its error names. A closed QP has no state."""
    if state is None:
        return _CLOSED
    if rc == errno.ENOMEM:
        return _full(depth, "max_recv_wr")
    if rc != errno.EINVAL:
        return None
    if shared:
        return "the QP takes receives from its SRQ: post them there"
    if state == IBV_QPS_RESET:
        return f"the QP is in {state.name}; it takes receives from IBV_QPS_INIT on: to_init(...)"
    return None


def _full(depth: int, capacity: str) -> str:
    return f"{depth} requests are under way, as many as {capacity} allows"
