# SPDX-License-Identifier: GPL-2.0-or-later
"""The control QP of a ShiftQP: WRITEs with immediate into the peer's mailbox, over the backup NIC.

It is a queue pair of its own [D], so that its messages are never behind the application's receives,
and survive when the backup's data QP begins anew.
"""

from __future__ import annotations

import dataclasses
import socket
from typing import Any

from softroce_lab.transports.shift.protocol import BYTES, Message, Whose, decode
from softroce_lab.verbs import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AHAttr,
    GlobalRoute,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
)
from softroce_lab.verbs.device import GID
from softroce_lab.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_QPT_RC,
    IBV_SEND_INLINE,
    IBV_SEND_SIGNALED,
    IBV_WC_SUCCESS,
    IBV_WR_RDMA_WRITE_WITH_IMM,
)
from softroce_lab.verbs.pyverbs_error import PyverbsRDMAError

SLOTS = 16
_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
_RETRIES, _FOR_EVER = 7, 7
_RNR_TIMER = 12  # 0.64 ms


class Control:
    """One end of the control connection."""

    def __init__(self, pd: PD, cq: CQ, psn: int, whose: Whose) -> None:
        self._whose = whose
        # Its address is in packets: one of the process would differ from run to run.
        self._mailbox = MR(pd, SLOTS * BYTES, _ACCESS, iova=0)
        self._out = MR(pd, BYTES, IBV_ACCESS_LOCAL_WRITE)
        cap = QPCap(4 * SLOTS, 2 * SLOTS, 1, 1, BYTES)
        self.qp = QP(pd, QPInitAttr(IBV_QPT_RC, None, cq, cq, None, cap, 1))
        self._psn = psn
        self._sent = self._received = 0
        self._peer: dict[str, Any] = {}
        self.connected = self.broken = False

    def record(self) -> dict[str, Any]:
        """What the peer needs to know."""
        return {
            "qp": self.qp.qp_num,
            "psn": self._psn,
            "mailbox": self._mailbox.iova,
            "rkey": self._mailbox.rkey,
        }

    def connect(self, gid: str, peer: dict[str, Any], attr: QPAttr) -> None:
        """To RTS; timeout and path MTU as the application's QP has them."""
        self._peer = peer
        mine = dataclasses.replace(
            attr,
            ah_attr=AHAttr(is_global=1, gr=GlobalRoute(dgid=GID(gid))),
            dest_qp_num=peer["qp"],
            sq_psn=self._psn,
            rq_psn=peer["psn"],
            qp_access_flags=_ACCESS,
            retry_cnt=_RETRIES,
            rnr_retry=_FOR_EVER,
            min_rnr_timer=_RNR_TIMER,
            max_rd_atomic=0,
            max_dest_rd_atomic=0,
        )
        self.qp.to_rtr(mine)
        for _ in range(SLOTS):
            self._post_receive()
        self.qp.to_rts(mine)
        self.connected = True

    def _post_receive(self) -> None:
        self.qp.post_recv(RecvWR(0, 1, [SGE(self._out.buf, 0, self._out.lkey)]))

    def tell(self, message: Message) -> bool:
        """Send it; False, if the connection is broken, or was never there."""
        if self.broken or not self.connected:
            return False
        data = message.encode(self._sent, self._whose)
        self._out.write(data, BYTES)
        wr = SendWR(
            self._sent,
            IBV_WR_RDMA_WRITE_WITH_IMM,
            1,
            socket.htonl(message.received & 0xFFFFFFFF),
            [SGE(self._out.buf, BYTES, self._out.lkey)],
            IBV_SEND_INLINE | IBV_SEND_SIGNALED,
        )
        slot = self._sent % SLOTS
        wr.set_wr_rdma(self._peer["rkey"], self._peer["mailbox"] + slot * BYTES)
        try:
            self.qp.post_send(wr)
        except PyverbsRDMAError:
            self.broken = True
            return False
        self._sent += 1
        return True

    def completed(self, native: Any) -> Message | None:
        """The message that a completion of its QP brings, if any; it may break the connection."""
        if native.status != IBV_WC_SUCCESS:
            self.broken = True
            return None
        if native.opcode < 128:  # a send of ours
            return None
        slot = self._received % SLOTS
        message = decode(self._mailbox.read(BYTES, slot * BYTES), self._received)
        self._received += 1
        self._post_receive()
        return message

    def close(self) -> None:
        """Close what is its own."""
        for each in (self.qp, self._mailbox, self._out):
            each.close()
