# SPDX-License-Identifier: GPL-2.0-or-later
"""Queue pairs of RC, UC and UD: attributes, states, and the queues that requests are posted to."""

from __future__ import annotations

import dataclasses
import errno
import functools
import operator
from typing import TYPE_CHECKING, Any, NoReturn

from softroce_lab import _native
from softroce_lab.verbs import enums
from softroce_lab.verbs.addr import AHAttr, address_vector, ah_attr
from softroce_lab.verbs.base import Closable, ask, expect, expect_unsigned, named, table
from softroce_lab.verbs.cq import CQ
from softroce_lab.verbs.pd import PD
from softroce_lab.verbs.pyverbs_error import PyverbsRDMAError
from softroce_lab.verbs.srq import SRQ
from softroce_lab.verbs.wr import RecvWR, SendWR, chain_of, refuse

if TYPE_CHECKING:
    from softroce_lab._native import AddressVector
    from softroce_lab._native import QpAttr as NativeAttr

__all__ = ["QP", "QPAttr", "QPCap", "QPInitAttr"]

_NO_INDEX = 255  # beyond every table of GIDs

Capacities = tuple[int, int, int, int, int]

_PLAIN_FIELDS = {  # of what is the same number to the engine: (field, bits)
    enums.IBV_QP_STATE: ("qp_state", 8),
    enums.IBV_QP_CUR_STATE: ("cur_qp_state", 8),
    enums.IBV_QP_ACCESS_FLAGS: ("qp_access_flags", 32),
    enums.IBV_QP_PKEY_INDEX: ("pkey_index", 16),
    enums.IBV_QP_PORT: ("port_num", 8),
    enums.IBV_QP_QKEY: ("qkey", 32),
    enums.IBV_QP_TIMEOUT: ("timeout", 8),
    enums.IBV_QP_RETRY_CNT: ("retry_cnt", 8),
    enums.IBV_QP_RNR_RETRY: ("rnr_retry", 8),
    enums.IBV_QP_RQ_PSN: ("rq_psn", 32),
    enums.IBV_QP_MAX_QP_RD_ATOMIC: ("max_rd_atomic", 8),
    enums.IBV_QP_MIN_RNR_TIMER: ("min_rnr_timer", 8),
    enums.IBV_QP_SQ_PSN: ("sq_psn", 32),
    enums.IBV_QP_MAX_DEST_RD_ATOMIC: ("max_dest_rd_atomic", 8),
    enums.IBV_QP_DEST_QPN: ("dest_qp_num", 32),
}


@dataclasses.dataclass
class QPCap:
    """How deep the queues are, and how long their requests."""

    max_send_wr: int = 1
    max_recv_wr: int = 10
    max_send_sge: int = 1
    max_recv_sge: int = 1
    max_inline_data: int = 0

    def native(self) -> Capacities:
        """What the engine takes."""
        values = [expect_unsigned(name, value, 32) for name, value in vars(self).items()]
        sends, receives, send_sges, receive_sges, inline = values
        return sends, receives, send_sges, receive_sges, inline

    def __str__(self) -> str:
        return table([(name.replace("_", " "), value) for name, value in vars(self).items()])


@dataclasses.dataclass
class QPInitAttr:
    """What a queue pair is made of."""

    qp_type: int = enums.IBV_QPT_UD
    qp_context: Any = None
    scq: CQ | None = None
    rcq: CQ | None = None
    srq: SRQ | None = None
    cap: QPCap = dataclasses.field(default_factory=QPCap)
    sq_sig_all: int = 1

    def __post_init__(self) -> None:
        if self.cap is None:
            self.cap = QPCap()

    @property
    def send_cq(self) -> CQ | None:
        """Where sends complete."""
        return self.scq

    @send_cq.setter
    def send_cq(self, cq: CQ) -> None:
        self.scq = cq

    @property
    def recv_cq(self) -> CQ | None:
        """Where receives complete."""
        return self.rcq

    @recv_cq.setter
    def recv_cq(self, cq: CQ) -> None:
        self.rcq = cq

    def __str__(self) -> str:
        rows = [
            ("QP type", named(enums.ibv_qp_type, self.qp_type)),
            ("SQ sig. all", self.sq_sig_all),
        ]
        return table(rows) + "QP caps:\n" + str(self.cap)


@dataclasses.dataclass
class QPAttr:
    """Attributes that a modification sets; its mask selects them.

    What is not given is 0, as in C: a `timeout` of 0 waits for ever, an `ah_attr` that is not
    global leads nowhere.
    """

    qp_state: int = enums.IBV_QPS_INIT
    cur_qp_state: int = enums.IBV_QPS_RESET
    port_num: int = 1
    path_mtu: int = enums.IBV_MTU_1024
    pkey_index: int = 0
    qkey: int = 0
    sq_psn: int = 0
    path_mig_state: int = enums.IBV_MIG_MIGRATED
    rq_psn: int = 0
    dest_qp_num: int = 0
    qp_access_flags: int = 0
    cap: QPCap = dataclasses.field(default_factory=lambda: QPCap(0, 0, 0, 0, 0))
    ah_attr: AHAttr = dataclasses.field(default_factory=AHAttr)
    alt_ah_attr: AHAttr = dataclasses.field(default_factory=AHAttr)
    alt_pkey_index: int = 0
    en_sqd_async_notify: int = 0
    sq_draining: int = 0
    max_rd_atomic: int = 0
    max_dest_rd_atomic: int = 0
    min_rnr_timer: int = 0
    timeout: int = 0
    retry_cnt: int = 0
    rnr_retry: int = 0
    alt_port_num: int = 0
    alt_timeout: int = 0
    rate_limit: int = 0

    def native(self, mask: int, next_hop_mac: int) -> NativeAttr:
        """What of this the engine takes, by an `ibv_qp_attr_mask`.

        What it cannot take becomes what it refuses, at the step that needs it.
        """
        native = _native.QpAttr()
        for bit, (name, bits) in _PLAIN_FIELDS.items():
            if mask & bit:
                setattr(native, name, expect_unsigned(name, getattr(self, name), bits))
        if mask & enums.IBV_QP_PATH_MTU:
            mtu = expect_unsigned("path_mtu", self.path_mtu, 32)
            native.path_mtu_bytes = (
                128 << mtu if enums.IBV_MTU_256 <= mtu <= enums.IBV_MTU_4096 else 0
            )
        if mask & enums.IBV_QP_AV:
            native.address = _vector(self.ah_attr, next_hop_mac)
        if mask & enums.IBV_QP_EN_SQD_ASYNC_NOTIFY:
            native.en_sqd_async_notify = bool(self.en_sqd_async_notify)
        return native

    @classmethod
    def of(cls, native: NativeAttr, cap: Capacities, draining: bool) -> QPAttr:
        """What the engine reports."""
        attr = cls(cap=QPCap(*cap), sq_draining=int(draining))
        for name, _ in _PLAIN_FIELDS.values():
            setattr(attr, name, getattr(native, name))
        attr.qp_state = enums.ibv_qp_state(attr.qp_state)
        attr.cur_qp_state = enums.ibv_qp_state(attr.cur_qp_state)
        attr.path_mtu = enums.ibv_mtu(native.path_mtu_bytes.bit_length() - 8)
        attr.en_sqd_async_notify = int(native.en_sqd_async_notify)
        if native.address.destination:
            attr.ah_attr = ah_attr(native.address)
        return attr

    def __str__(self) -> str:
        rows = [(name, value) for name, value in vars(self).items() if not _is_nested(value)]
        return (
            table(
                [
                    ("QP state", named(enums.ibv_qp_state, self.qp_state)),
                    ("QP current state", named(enums.ibv_qp_state, self.cur_qp_state)),
                    ("Path MTU", named(enums.ibv_mtu, self.path_mtu)),
                    *(
                        row
                        for row in rows
                        if row[0] not in ("qp_state", "cur_qp_state", "path_mtu")
                    ),
                ]
            )
            + f"QP caps:\n{self.cap}AH Attr:\n{self.ah_attr}"
        )


def _vector(attr: AHAttr, next_hop_mac: int) -> AddressVector:
    try:
        return address_vector(attr, next_hop_mac, "Failed to modify QP")
    except PyverbsRDMAError:
        nowhere = _native.AddressVector()
        nowhere.sgid_index = _NO_INDEX
        return nowhere


def _is_nested(value: object) -> bool:
    return isinstance(value, (QPCap, AHAttr))


# ---------------------------------------------------------------- queue pairs

# What `to_init`, `to_rtr` and `to_rts` set besides the state: what IBA table 91 requires.
_CONNECTED_INIT = enums.IBV_QP_PKEY_INDEX | enums.IBV_QP_PORT | enums.IBV_QP_ACCESS_FLAGS
_DATAGRAM_INIT = enums.IBV_QP_PKEY_INDEX | enums.IBV_QP_PORT | enums.IBV_QP_QKEY
_CONNECTED_RTR = (
    enums.IBV_QP_AV | enums.IBV_QP_PATH_MTU | enums.IBV_QP_DEST_QPN | enums.IBV_QP_RQ_PSN
)
_RETRIES = (
    enums.IBV_QP_TIMEOUT
    | enums.IBV_QP_RETRY_CNT
    | enums.IBV_QP_RNR_RETRY
    | enums.IBV_QP_MAX_QP_RD_ATOMIC
)
_MASKS: dict[int, tuple[int, int, int]] = {
    enums.IBV_QPT_RC: (
        _CONNECTED_INIT,
        _CONNECTED_RTR | enums.IBV_QP_MAX_DEST_RD_ATOMIC | enums.IBV_QP_MIN_RNR_TIMER,
        enums.IBV_QP_SQ_PSN | _RETRIES,
    ),
    enums.IBV_QPT_UC: (_CONNECTED_INIT, _CONNECTED_RTR, enums.IBV_QP_SQ_PSN),
    enums.IBV_QPT_UD: (_DATAGRAM_INIT, 0, enums.IBV_QP_SQ_PSN),
}
_STEPS: tuple[int, ...] = (enums.IBV_QPS_INIT, enums.IBV_QPS_RTR, enums.IBV_QPS_RTS)
_STEP_FAILURES = (
    "Failed to modify QP state to init",
    "Failed to modify QP state to RTR",
    "Failed to modify QP state to RTS",
)


def transition_mask(qp_type: int, state: int) -> int:
    """Which attributes bring a QP of a type to INIT, RTR or RTS; KeyError for another state."""
    return int(enums.IBV_QP_STATE) | dict(zip(_STEPS, _MASKS[qp_type], strict=True))[state]


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
        self.qp_type = enums.ibv_qp_type(init_attr.qp_type)
        self.pd, self.scq, self.rcq, self.srq = creator, scq, rcq, srq
        self.qp_context = init_attr.qp_context
        self._sq_sig_all = init_attr.sq_sig_all
        self._cap = QPCap(*cap)
        init_attr.cap = QPCap(*cap)  # what was granted, as ibv_create_qp writes it
        parents = [creator, scq, rcq, *([srq] if srq else [])]
        super().__init__(*parents)
        creator.ctx.know_qp(self)
        if qp_attr is not None:
            (self.to_rts if self.qp_type == enums.IBV_QPT_UD else self.to_init)(qp_attr)

    # ---------------------------------------------------------------- states

    @property
    def qp_state(self) -> enums.ibv_qp_state:
        """The state now; RESET, if the QP is closed."""
        answer = self._ask_for_all("Failed to query QP")
        return enums.IBV_QPS_RESET if answer is None else enums.ibv_qp_state(answer[0].qp_state)

    @property
    def _known_state(self) -> enums.ibv_qp_state | None:
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
        qp_attr.qp_state = enums.IBV_QPS_INIT
        native = qp_attr.native(_union(masks), self.pd.ctx.next_hop_mac)
        rc, step = ask(failure, self._endpoint.bring_qp, self.qp_num, native, masks)
        qp_attr.qp_state = enums.ibv_qp_state(min(step, steps - 1) + 1)
        if rc:
            why = _why_no_step(rc, self.qp_type, self.qp_state, _STEPS[step], qp_attr)
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
        why = _why_no_receive(rc, self._known_state, self._cap.max_recv_wr, shared=shared)
        refuse("Failed to post recv", rc, wr, bad_wr, why)

    def post_send(self, wr: SendWR, bad_wr: SendWR | None = None) -> None:
        """Post a send and those chained to it; on failure `bad_wr` becomes the one refused."""
        failure = "Failed to post send"
        chain = chain_of(wr, SendWR, bad_wr)
        ready = self._addressed(chain) if self.qp_type == enums.IBV_QPT_UD else chain
        rc, index = ask(failure, self._endpoint.post_sends, self.qp_num, ready)
        if rc == 0 and len(ready) < len(chain):
            why = "a datagram needs an open AH of the QP's PD: set_wr_ud(ah, rqpn, rqkey)"
            refuse(failure, errno.EINVAL, chain[len(ready)], bad_wr, why)
        if rc:
            self._refuse_send(rc, chain[index], bad_wr)

    def _refuse_send(self, rc: int, wr: SendWR, bad_wr: SendWR | None) -> NoReturn:
        why = _why_no_send(rc, self._known_state, self._cap.max_send_wr)
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


# ---------------------------------------------------------------- why a call is refused
# Where rdma-core leaves one to guess behind EINVAL or ENOMEM.

_CLOSED = "the QP is closed"
_BEFORE = dict(zip(_STEPS, (enums.IBV_QPS_RESET, *_STEPS), strict=False))


def _why_no_step(
    rc: int, qp_type: int, now: enums.ibv_qp_state, wanted: enums.ibv_qp_state, attr: QPAttr
) -> str | None:
    """Why a queue pair does not go to INIT, RTR or RTS; None: for an attribute out of range."""
    if rc != errno.EINVAL:
        return None
    if now != _BEFORE[wanted] and not now == wanted == enums.IBV_QPS_INIT:
        return f"the QP is in {now.name}"
    if (
        wanted == enums.IBV_QPS_RTR
        and qp_type in (enums.IBV_QPT_RC, enums.IBV_QPT_UC)
        and not attr.ah_attr.is_global
    ):
        return (
            "ah_attr leads nowhere; a peer is reached by "
            "QPAttr(ah_attr=AHAttr(is_global=1, gr=GlobalRoute(dgid=...)), dest_qp_num=...)"
        )
    return None


def _why_no_send(rc: int, state: enums.ibv_qp_state | None, depth: int) -> str | None:
    """Why a request is not taken; None: for what its error names. A closed QP has no state."""
    if state is None:
        return _CLOSED
    if rc == errno.ENOMEM:
        return _full(depth, "max_send_wr")
    if rc == errno.EINVAL and state < enums.IBV_QPS_RTS:
        return f"the QP is in {state.name}; it sends from IBV_QPS_RTS on: to_rts(...)"
    return None


def _why_no_receive(
    rc: int, state: enums.ibv_qp_state | None, depth: int, *, shared: bool
) -> str | None:
    """Why a receive is not taken; None: for what its error names. A closed QP has no state."""
    if state is None:
        return _CLOSED
    if rc == errno.ENOMEM:
        return _full(depth, "max_recv_wr")
    if rc != errno.EINVAL:
        return None
    if shared:
        return "the QP takes receives from its SRQ: post them there"
    if state == enums.IBV_QPS_RESET:
        return f"the QP is in {state.name}; it takes receives from IBV_QPS_INIT on: to_init(...)"
    return None


def _full(depth: int, capacity: str) -> str:
    return f"{depth} requests are under way, as many as {capacity} allows"
