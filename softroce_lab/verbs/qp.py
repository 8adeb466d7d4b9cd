# SPDX-License-Identifier: GPL-2.0-or-later
"""Queue pairs of the services RC, UC and UD; and QP 1, which speaks UD."""

from __future__ import annotations

import errno
import functools
import operator
from typing import Any, NoReturn

from softroce_lab.verbs import hints
from softroce_lab.verbs.base import Closable, ask, expect, expect_unsigned, table
from softroce_lab.verbs.cq import CQ
from softroce_lab.verbs.enums import (
    IBV_QP_ACCESS_FLAGS,
    IBV_QP_AV,
    IBV_QP_DEST_QPN,
    IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER,
    IBV_QP_PATH_MTU,
    IBV_QP_PKEY_INDEX,
    IBV_QP_PORT,
    IBV_QP_QKEY,
    IBV_QP_RETRY_CNT,
    IBV_QP_RNR_RETRY,
    IBV_QP_RQ_PSN,
    IBV_QP_SQ_PSN,
    IBV_QP_STATE,
    IBV_QP_TIMEOUT,
    IBV_QPS_INIT,
    IBV_QPS_RESET,
    IBV_QPS_RTR,
    IBV_QPS_RTS,
    IBV_QPT_RC,
    IBV_QPT_UC,
    IBV_QPT_UD,
    ibv_qp_state,
    ibv_qp_type,
)
from softroce_lab.verbs.errors import PyverbsRDMAError
from softroce_lab.verbs.pd import PD
from softroce_lab.verbs.posting import chain_of, refuse
from softroce_lab.verbs.qp_attr import QPAttr, QPCap, QPInitAttr
from softroce_lab.verbs.srq import SRQ
from softroce_lab.verbs.wr import RecvWR, SendWR

__all__ = ["QP", "QPAttr", "QPCap", "QPInitAttr"]

# What `to_init`, `to_rtr` and `to_rts` set besides the state: what IBA table 91 requires.
_CONNECTED_INIT = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS
_DATAGRAM_INIT = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY
_CONNECTED_RTR = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
_RETRIES = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
_MASKS: dict[int, tuple[int, int, int]] = {
    IBV_QPT_RC: (
        _CONNECTED_INIT,
        _CONNECTED_RTR | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        IBV_QP_SQ_PSN | _RETRIES,
    ),
    IBV_QPT_UC: (_CONNECTED_INIT, _CONNECTED_RTR, IBV_QP_SQ_PSN),
    IBV_QPT_UD: (_DATAGRAM_INIT, 0, IBV_QP_SQ_PSN),
}
_STEPS: tuple[int, ...] = (IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS)
_STEP_FAILURES = (
    "Failed to modify QP state to init",
    "Failed to modify QP state to RTR",
    "Failed to modify QP state to RTS",
)


def transition_mask(qp_type: int, state: int) -> int:
    """Which attributes bring a QP of a type to INIT, RTR or RTS; KeyError for another state."""
    return int(IBV_QP_STATE) | dict(zip(_STEPS, _MASKS[qp_type], strict=True))[state]


class QP(Closable):
    """A queue pair; with a `qp_attr` it is brought as far as that goes.

    That is RTS for datagrams, INIT for connected services, which must know their peer first.
    Closing it forgets its outstanding work requests, without completions.
    """

    close_rank = 0

    def __init__(self, creator: PD, init_attr: QPInitAttr, qp_attr: QPAttr | None = None) -> None:
        failure = "Failed to create QP"
        scq, rcq = _check(failure, creator, init_attr)
        self._endpoint = creator.ctx.endpoint
        srq = init_attr.srq
        rc, number, cap = ask(
            failure,
            self._endpoint.create_qp,
            int(init_attr.qp_type),
            scq.native,
            rcq.native,
            srq.number if srq else 0,
            init_attr.cap.native(),
            creator.handle,
            bool(init_attr.sq_sig_all),
        )
        if rc:
            raise PyverbsRDMAError(failure, rc)
        self.qp_num = int(number)
        self.qp_type = ibv_qp_type(init_attr.qp_type)
        self.pd, self.scq, self.rcq, self.srq = creator, scq, rcq, srq
        self.qp_context = init_attr.qp_context
        self._sq_sig_all = init_attr.sq_sig_all
        self._cap = QPCap(*cap)
        init_attr.cap = QPCap(*cap)  # what was granted, as ibv_create_qp writes it
        parents = [creator, scq, rcq, *([srq] if srq else [])]
        super().__init__(*parents)
        creator.ctx.know_qp(self)
        if qp_attr is not None:
            (self.to_rts if self.qp_type == IBV_QPT_UD else self.to_init)(qp_attr)

    # ---------------------------------------------------------------- states

    @property
    def qp_state(self) -> ibv_qp_state:
        """The state now; RESET, if the QP is closed."""
        answer = self._ask_for_all("Failed to query QP")
        return IBV_QPS_RESET if answer is None else ibv_qp_state(answer[0].qp_state)

    @property
    def _known_state(self) -> ibv_qp_state | None:
        return None if self.closed else self.qp_state

    def to_init(self, qp_attr: QPAttr) -> None:
        """From RESET to INIT."""
        self._bring(qp_attr, 1)

    def to_rtr(self, qp_attr: QPAttr) -> None:
        """To RTR, from INIT or by way of it."""
        self._bring(qp_attr, 2)

    def to_rts(self, qp_attr: QPAttr) -> None:
        """To RTS, from RTR or by way of it."""
        self._bring(qp_attr, 3)

    def _bring(self, qp_attr: QPAttr, steps: int) -> None:
        """All steps in one turn of the engine; `qp_attr.qp_state` is the last one tried."""
        failure = _STEP_FAILURES[steps - 1]
        self.check_open(failure)
        expect("qp_attr", qp_attr, QPAttr)
        masks = [transition_mask(self.qp_type, state) for state in _STEPS[:steps]]
        qp_attr.qp_state = IBV_QPS_INIT
        native = qp_attr.native(_union(masks), self.pd.ctx.next_hop_mac)
        rc, step = ask(failure, self._endpoint.bring_qp, self.qp_num, native, masks)
        qp_attr.qp_state = ibv_qp_state(min(step, steps - 1) + 1)
        if rc:
            why = hints.of_step(rc, self.qp_type, self.qp_state, _STEPS[step], qp_attr)
            raise PyverbsRDMAError(_STEP_FAILURES[step], rc, hint=why)

    def modify(self, qp_attr: QPAttr, comp_mask: int) -> None:
        """Set what of `qp_attr` the `ibv_qp_attr_mask` names; EINVAL, if it may not be set now."""
        self._modify(qp_attr, comp_mask, "Failed to modify QP")

    def _modify(self, qp_attr: QPAttr, comp_mask: int, failure: str) -> None:
        self.check_open(failure)
        expect("qp_attr", qp_attr, QPAttr)
        mask = expect_unsigned("comp_mask", comp_mask, 32)
        native = qp_attr.native(mask, self.pd.ctx.next_hop_mac)
        if rc := ask(failure, self._endpoint.modify_qp, self.qp_num, native, mask):
            raise PyverbsRDMAError(failure, rc)

    def query(self, attr_mask: int) -> tuple[QPAttr, QPInitAttr]:
        """All attributes, and what the QP was made of; the mask is a wish for fewer."""
        failure = "Failed to query QP"
        expect("attr_mask", attr_mask, int)
        answer = self._ask_for_all(failure)
        if answer is None:
            raise PyverbsRDMAError(failure, errno.EINVAL)
        attr = QPAttr.of(*answer)
        init = QPInitAttr(
            self.qp_type, self.qp_context, self.scq, self.rcq, self.srq, attr.cap, self._sq_sig_all
        )
        return attr, init

    def _ask_for_all(self, failure: str) -> Any:
        return ask(failure, self._endpoint.query_qp, self.qp_num)

    # ---------------------------------------------------------------- posting

    def post_recv(self, wr: RecvWR, bad_wr: RecvWR | None = None) -> None:
        """Post a receive and those chained to it; on failure `bad_wr` becomes the one refused."""
        failure = "Failed to post recv"
        chain = chain_of(wr, RecvWR, bad_wr)
        rc, index = ask(failure, self._endpoint.post_receives, self.qp_num, chain)
        if rc:
            self._refuse_recv(rc, chain[index], bad_wr)

    def _refuse_recv(self, rc: int, wr: RecvWR, bad_wr: RecvWR | None) -> NoReturn:
        shared = self.srq is not None
        why = hints.of_post_recv(rc, self._known_state, self._cap.max_recv_wr, shared=shared)
        refuse("Failed to post recv", rc, wr, bad_wr, why)

    def post_send(self, wr: SendWR, bad_wr: SendWR | None = None) -> None:
        """Post a send and those chained to it; on failure `bad_wr` becomes the one refused."""
        failure = "Failed to post send"
        chain = chain_of(wr, SendWR, bad_wr)
        ready = self._addressed(chain) if self.qp_type == IBV_QPT_UD else chain
        rc, index = ask(failure, self._endpoint.post_sends, self.qp_num, ready)
        if rc == 0 and len(ready) < len(chain):
            why = "a datagram needs an open AH of the QP's PD: set_wr_ud(ah, rqpn, rqkey)"
            refuse(failure, errno.EINVAL, chain[len(ready)], bad_wr, why)
        if rc:
            self._refuse_send(rc, chain[index], bad_wr)

    def _refuse_send(self, rc: int, wr: SendWR, bad_wr: SendWR | None) -> NoReturn:
        why = hints.of_post_send(rc, self._known_state, self._cap.max_send_wr)
        refuse("Failed to post send", rc, wr, bad_wr, why)

    def _addressed(self, chain: list[SendWR]) -> list[SendWR]:
        """The requests before the first without an address of this QP's domain."""
        for index, wr in enumerate(chain):
            if wr.ah is None or wr.ah.closed or wr.ah.pd is not self.pd:
                return chain[:index]
        return chain

    # ---------------------------------------------------------------- ends

    def overrun_cq(self) -> CQ | None:
        """Which of its completion queues is in error."""
        queues = (each for each in (self.rcq, self.scq) if each.native.overrun)
        return next(queues, None)

    def _release(self) -> None:
        failure = "Failed to destroy QP"
        if rc := ask(failure, self._endpoint.destroy_qp, self.qp_num):
            raise PyverbsRDMAError(failure, rc)

    def __str__(self) -> str:
        return table(
            [
                ("QP type", self.qp_type.name),
                ("  number", self.qp_num),
                ("  state", self.qp_state.name),
            ]
        )


def _union(masks: list[int]) -> int:
    return functools.reduce(operator.or_, masks)


def _check(failure: str, pd: PD, init_attr: QPInitAttr) -> tuple[CQ, CQ]:
    """The two completion queues of attributes that a QP can be made of."""
    expect("creator", pd, PD)
    expect("init_attr", init_attr, QPInitAttr)
    expect("cap", init_attr.cap, QPCap)
    expect("qp_type", init_attr.qp_type, int)
    scq, rcq, srq = init_attr.scq, init_attr.rcq, init_attr.srq
    pd.check_open(failure)
    if init_attr.qp_type not in _MASKS:
        raise PyverbsRDMAError(failure, errno.EOPNOTSUPP, hint="there are RC, UC and UD")
    if scq is None or rcq is None:
        raise PyverbsRDMAError(failure, errno.EINVAL, hint="a QP needs scq and rcq")
    for name, cq in (("scq", scq), ("rcq", rcq)):
        expect(name, cq, CQ)
    if srq is not None:
        expect("srq", srq, SRQ)
    used: list[CQ | SRQ] = [scq, rcq, *([srq] if srq else [])]
    for each in used:
        each.check_open(failure)
        if (each.pd.ctx if isinstance(each, SRQ) else each.context) is not pd.ctx:
            raise PyverbsRDMAError(failure, errno.EINVAL, hint="all of a QP is of one context")
    return scq, rcq
