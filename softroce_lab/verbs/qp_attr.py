# SPDX-License-Identifier: GPL-2.0-or-later
"""What queue pairs are made of and set to."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from softroce_lab import _native
from softroce_lab.verbs.addr import AHAttr, address_vector, ah_attr
from softroce_lab.verbs.base import expect_unsigned, named, table
from softroce_lab.verbs.enums import (
    IBV_MIG_MIGRATED,
    IBV_MTU_256,
    IBV_MTU_1024,
    IBV_MTU_4096,
    IBV_QP_ACCESS_FLAGS,
    IBV_QP_AV,
    IBV_QP_CUR_STATE,
    IBV_QP_DEST_QPN,
    IBV_QP_EN_SQD_ASYNC_NOTIFY,
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
    IBV_QPT_UD,
    ibv_mtu,
    ibv_qp_state,
    ibv_qp_type,
)
from softroce_lab.verbs.errors import PyverbsRDMAError

if TYPE_CHECKING:
    from softroce_lab._native import AddressVector
    from softroce_lab._native import QpAttr as NativeAttr
    from softroce_lab.verbs.cq import CQ
    from softroce_lab.verbs.srq import SRQ

_NO_INDEX = 255  # beyond every table of GIDs

Capacities = tuple[int, int, int, int, int]

_PLAIN_FIELDS = {  # of what is the same number to the engine: (field, bits)
    IBV_QP_STATE: ("qp_state", 8),
    IBV_QP_CUR_STATE: ("cur_qp_state", 8),
    IBV_QP_ACCESS_FLAGS: ("qp_access_flags", 32),
    IBV_QP_PKEY_INDEX: ("pkey_index", 16),
    IBV_QP_PORT: ("port_num", 8),
    IBV_QP_QKEY: ("qkey", 32),
    IBV_QP_TIMEOUT: ("timeout", 8),
    IBV_QP_RETRY_CNT: ("retry_cnt", 8),
    IBV_QP_RNR_RETRY: ("rnr_retry", 8),
    IBV_QP_RQ_PSN: ("rq_psn", 32),
    IBV_QP_MAX_QP_RD_ATOMIC: ("max_rd_atomic", 8),
    IBV_QP_MIN_RNR_TIMER: ("min_rnr_timer", 8),
    IBV_QP_SQ_PSN: ("sq_psn", 32),
    IBV_QP_MAX_DEST_RD_ATOMIC: ("max_dest_rd_atomic", 8),
    IBV_QP_DEST_QPN: ("dest_qp_num", 32),
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

    qp_type: int = IBV_QPT_UD
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
        rows = [("QP type", named(ibv_qp_type, self.qp_type)), ("SQ sig. all", self.sq_sig_all)]
        return table(rows) + "QP caps:\n" + str(self.cap)


@dataclasses.dataclass
class QPAttr:
    """Attributes that a modification sets; its mask selects them.

    What is not given is 0, as in C: a `timeout` of 0 waits for ever, an `ah_attr` that is not
    global leads nowhere.
    """

    qp_state: int = IBV_QPS_INIT
    cur_qp_state: int = IBV_QPS_RESET
    port_num: int = 1
    path_mtu: int = IBV_MTU_1024
    pkey_index: int = 0
    qkey: int = 0
    sq_psn: int = 0
    path_mig_state: int = IBV_MIG_MIGRATED
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
        if mask & IBV_QP_PATH_MTU:
            mtu = expect_unsigned("path_mtu", self.path_mtu, 32)
            native.path_mtu_bytes = 128 << mtu if IBV_MTU_256 <= mtu <= IBV_MTU_4096 else 0
        if mask & IBV_QP_AV:
            native.address = _vector(self.ah_attr, next_hop_mac)
        if mask & IBV_QP_EN_SQD_ASYNC_NOTIFY:
            native.en_sqd_async_notify = bool(self.en_sqd_async_notify)
        return native

    @classmethod
    def of(cls, native: NativeAttr, cap: Capacities, draining: bool) -> QPAttr:
        """What the engine reports."""
        attr = cls(cap=QPCap(*cap), sq_draining=int(draining))
        for name, _ in _PLAIN_FIELDS.values():
            setattr(attr, name, getattr(native, name))
        attr.qp_state = ibv_qp_state(attr.qp_state)
        attr.cur_qp_state = ibv_qp_state(attr.cur_qp_state)
        attr.path_mtu = ibv_mtu(native.path_mtu_bytes.bit_length() - 8)
        attr.en_sqd_async_notify = int(native.en_sqd_async_notify)
        if native.address.destination:
            attr.ah_attr = ah_attr(native.address)
        return attr

    def __str__(self) -> str:
        rows = [(name, value) for name, value in vars(self).items() if not _is_nested(value)]
        return (
            table(
                [
                    ("QP state", named(ibv_qp_state, self.qp_state)),
                    ("QP current state", named(ibv_qp_state, self.cur_qp_state)),
                    ("Path MTU", named(ibv_mtu, self.path_mtu)),
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
