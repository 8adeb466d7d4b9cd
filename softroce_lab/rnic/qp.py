# SPDX-License-Identifier: GPL-2.0-or-later
"""Queue pairs. Of the services, UD is there."""

from __future__ import annotations

import dataclasses
import errno
from typing import Any

from softroce_lab.rnic.base import Closable, table
from softroce_lab.rnic.cq import CQ
from softroce_lab.rnic.enums import (
    IBV_MTU_1024,
    IBV_QP_PKEY_INDEX,
    IBV_QP_PORT,
    IBV_QP_QKEY,
    IBV_QP_SQ_PSN,
    IBV_QP_STATE,
    IBV_QPS_ERR,
    IBV_QPS_INIT,
    IBV_QPS_RESET,
    IBV_QPS_RTR,
    IBV_QPS_RTS,
    IBV_QPT_UD,
    IBV_SEND_INLINE,
    IBV_SEND_SIGNALED,
    IBV_SEND_SOLICITED,
    IBV_WR_SEND,
    ibv_mtu,
    ibv_qp_state,
    ibv_qp_type,
)
from softroce_lab.rnic.errors import PyverbsRDMAError
from softroce_lab.rnic.pd import PD
from softroce_lab.rnic.wr import RecvWR, SendWR

MAX_QP_WR = 16384
"""Deepest send or receive queue."""

_REQUIRED = {  # attributes that a UD transition needs, IBA table 91
    IBV_QPS_RESET: 0,
    IBV_QPS_INIT: IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
    IBV_QPS_RTR: 0,
    IBV_QPS_RTS: IBV_QP_SQ_PSN,
    IBV_QPS_ERR: 0,
}


@dataclasses.dataclass
class QPCap:
    """How deep the queues are, and how long their requests."""

    max_send_wr: int = 1
    max_recv_wr: int = 10
    max_send_sge: int = 1
    max_recv_sge: int = 1
    max_inline_data: int = 0

    def __str__(self) -> str:
        return table([(name.replace("_", " "), value) for name, value in vars(self).items()])


@dataclasses.dataclass
class QPInitAttr:
    """What a queue pair is made of."""

    qp_type: int = IBV_QPT_UD
    qp_context: Any = None
    scq: CQ | None = None
    rcq: CQ | None = None
    srq: None = None
    cap: QPCap = dataclasses.field(default_factory=QPCap)
    sq_sig_all: int = 1

    def __str__(self) -> str:
        rows = [("QP type", ibv_qp_type(self.qp_type).name), ("SQ sig. all", self.sq_sig_all)]
        return table(rows) + "QP caps:\n" + str(self.cap)


@dataclasses.dataclass
class QPAttr:
    """Attributes that a modification sets; which ones it uses depends on the transition."""

    qp_state: int = IBV_QPS_INIT
    cur_qp_state: int = IBV_QPS_RESET
    port_num: int = 1
    path_mtu: int = IBV_MTU_1024
    pkey_index: int = 0
    qkey: int = 0
    sq_psn: int = 0

    def __str__(self) -> str:
        return table(
            [
                ("QP state", ibv_qp_state(self.qp_state).name),
                ("QP current state", ibv_qp_state(self.cur_qp_state).name),
                ("Path MTU", ibv_mtu(self.path_mtu).name),
                ("PKey index", self.pkey_index),
                ("QKey", self.qkey),
                ("SQ PSN", self.sq_psn),
                ("Port number", self.port_num),
            ]
        )


class QP(Closable):
    """A queue pair; with a `qp_attr` it is brought to RTS at once.

    Closing it forgets its outstanding work requests, without completions.
    """

    close_rank = 0

    def __init__(self, creator: PD, init_attr: QPInitAttr, qp_attr: QPAttr | None = None) -> None:
        scq, rcq = _check(creator, init_attr)
        self._endpoint = creator.ctx.endpoint
        cap = init_attr.cap
        self.qp_num = int(
            self._endpoint.create_ud_qp(
                scq.native, rcq.native, cap.max_send_wr, cap.max_recv_wr, creator.handle
            )
        )
        super().__init__(creator, scq, rcq)
        self.pd = creator
        self.qp_type = ibv_qp_type(init_attr.qp_type)
        self._sq_sig_all = bool(init_attr.sq_sig_all)
        if qp_attr is not None:
            self.to_rts(qp_attr)

    @property
    def qp_state(self) -> ibv_qp_state:
        """The state now."""
        return ibv_qp_state(self._endpoint.ud_qp_state(self.qp_num))

    def to_init(self, qp_attr: QPAttr) -> None:
        """RESET to INIT, with `qkey`: receives may be posted."""
        self._go(IBV_QPS_INIT, qp_attr, "Failed to modify QP state to init")

    def to_rtr(self, qp_attr: QPAttr) -> None:
        """To RTR, by way of INIT: packets are taken."""
        if self.qp_state != IBV_QPS_INIT:
            self.to_init(qp_attr)
        self._go(IBV_QPS_RTR, qp_attr, "Failed to modify QP state to RTR")

    def to_rts(self, qp_attr: QPAttr) -> None:
        """To RTS, by way of those before, with `sq_psn`: sends may be posted."""
        if self.qp_state != IBV_QPS_RTR:
            self.to_rtr(qp_attr)
        self._go(IBV_QPS_RTS, qp_attr, "Failed to modify QP state to RTS")

    def _go(self, state: ibv_qp_state, qp_attr: QPAttr, failure: str) -> None:
        qp_attr.qp_state = state
        self._modify(qp_attr, _REQUIRED[state] | IBV_QP_STATE, failure)

    def modify(self, qp_attr: QPAttr, comp_mask: int) -> None:
        """Go to `qp_attr.qp_state`; `comp_mask` names what of `qp_attr` is set."""
        self._modify(qp_attr, comp_mask, "Failed to modify QP")

    def _modify(self, qp_attr: QPAttr, comp_mask: int, failure: str) -> None:
        state = ibv_qp_state(qp_attr.qp_state)
        required = _REQUIRED.get(state)
        known = required is not None and (comp_mask & ~required) == IBV_QP_STATE
        if required is None or not known or (comp_mask & required) != required:
            raise PyverbsRDMAError(failure, errno.EINVAL)
        if state == IBV_QPS_INIT and (qp_attr.port_num, qp_attr.pkey_index) != (1, 0):
            raise PyverbsRDMAError(failure, errno.EINVAL, hint="there is port 1 with P_Key 0")
        rc = self._endpoint.modify_ud_qp(
            self.qp_num, int(state), qp_attr.qkey, qp_attr.sq_psn & 0xFFFFFF
        )
        if rc:
            raise PyverbsRDMAError(failure, rc)

    def post_recv(self, wr: RecvWR, bad_wr: RecvWR | None = None) -> None:
        """Post a receive and those chained to it; on failure `bad_wr` becomes the one refused."""
        each: RecvWR | None = wr
        while each is not None:
            if rc := self._post_recv(each):
                if bad_wr is not None:
                    vars(bad_wr).update(vars(each))
                raise PyverbsRDMAError("Failed to post recv", rc)
            each = each.next_wr

    def post_send(self, wr: SendWR, bad_wr: SendWR | None = None) -> None:
        """Post a send and those chained to it; on failure `bad_wr` becomes the one refused."""
        each: SendWR | None = wr
        while each is not None:
            if rc := self._post_send(each):
                if bad_wr is not None:
                    vars(bad_wr).update(vars(each))
                raise PyverbsRDMAError("Failed to post send", rc)
            each = each.next_wr

    def _post_recv(self, wr: RecvWR) -> int:
        if wr.num_sge != 1:
            return errno.EINVAL
        sge = wr.sg_list[0]
        rc = self._endpoint.post_ud_receive(self.qp_num, wr.wr_id, sge.addr, sge.length, sge.lkey)
        return int(rc)

    def _post_send(self, wr: SendWR) -> int:
        if wr.opcode != IBV_WR_SEND:
            return errno.EOPNOTSUPP
        if wr.ah is None or wr.ah.pd is not self.pd or wr.num_sge != 1:
            return errno.EINVAL
        if wr.send_flags & IBV_SEND_INLINE:  # max_inline_data is 0
            return errno.EINVAL
        sge = wr.sg_list[0]
        rc = self._endpoint.post_ud_send(
            self.qp_num,
            wr.wr_id,
            sge.addr,
            sge.length,
            sge.lkey,
            wr.ah.ip,
            wr.ah.mac,
            wr.rqpn,
            wr.rqkey,
            signaled=self._sq_sig_all or bool(wr.send_flags & IBV_SEND_SIGNALED),
            solicited=bool(wr.send_flags & IBV_SEND_SOLICITED),
        )
        return int(rc)

    def _release(self) -> None:
        if rc := self._endpoint.destroy_ud_qp(self.qp_num):
            raise PyverbsRDMAError("Failed to destroy QP", rc)

    def __str__(self) -> str:
        return table(
            [
                ("QP type", self.qp_type.name),
                ("  number", self.qp_num),
                ("  state", self.qp_state.name),
            ]
        )


def _check(pd: PD, init_attr: QPInitAttr) -> tuple[CQ, CQ]:
    """The two completion queues of attributes that a QP can be made of."""
    failure = "Failed to create QP"
    if init_attr.qp_type != IBV_QPT_UD:
        raise PyverbsRDMAError(failure, errno.EOPNOTSUPP, hint="the RNIC has UD queue pairs")
    cap = init_attr.cap
    depths = (cap.max_send_wr, cap.max_recv_wr)
    lengths = (cap.max_send_sge, cap.max_recv_sge)
    if init_attr.scq is None or init_attr.rcq is None:
        raise PyverbsRDMAError(failure, errno.EINVAL, hint="a QP needs scq and rcq")
    if not all(0 <= depth <= MAX_QP_WR for depth in depths) or not set(lengths) <= {0, 1}:
        raise PyverbsRDMAError(
            failure, errno.EINVAL, hint=f"at most {MAX_QP_WR} requests of one element"
        )
    if cap.max_inline_data != 0 or init_attr.srq is not None:
        raise PyverbsRDMAError(failure, errno.EINVAL, hint="no inline data, no shared receives")
    if any(cq.context is not pd.ctx for cq in (init_attr.scq, init_attr.rcq)):
        raise PyverbsRDMAError(failure, errno.EINVAL, hint="PD and CQs are of one context")
    return init_attr.scq, init_attr.rcq
