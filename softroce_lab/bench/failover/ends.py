# SPDX-License-Identifier: GPL-2.0-or-later
"""Ends of `lab bench shift`: plain queue pairs and ShiftQPs between the same two RNICs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from softroce_lab.errors import RunError
from softroce_lab.experiment.failover.ring_job import reaching
from softroce_lab.rnic import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    Context,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
)
from softroce_lab.rnic.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WC_SUCCESS,
    IBV_WR_RDMA_WRITE,
    IBV_WR_SEND,
)
from softroce_lab.shift import Backup, ShiftQP

BYTES = 64
CHAIN = 64
TIMEOUT, RETRY_CNT = 12, 7  # 16.8 ms, and eight tries
_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
_PATIENCE_S = 10.0


def qp_attr(peer: QP, context: Context) -> QPAttr:
    """What connects a QP to a peer at a context."""
    return reaching(peer, context, timeout=TIMEOUT, retry_cnt=RETRY_CNT, min_rnr_timer=1)


class End:
    """A QP with what it needs; with a backup, if one is given."""

    def __init__(
        self, context: Context, backup: Backup | None, progress: Callable[[], object]
    ) -> None:
        self.context, self.pd, self._progress = context, PD(context), progress
        self.mr = MR(self.pd, 1 << 16, _ACCESS)
        self.cq = CQ(context, 1024)
        cap = QPCap(256, 256, 1, 1, 0)
        init = QPInitAttr(IBV_QPT_RC, None, self.cq, self.cq, None, cap, 0)
        self.qp = QP(self.pd, init) if backup is None else ShiftQP(self.pd, init, backup=backup)
        self._receive = RecvWR(0, 1, [SGE(self.mr.buf, BYTES, self.mr.lkey)])
        element = SGE(self.mr.buf, BYTES, self.mr.lkey)
        self._send = SendWR(0, IBV_WR_SEND, 1, 0, [element], IBV_SEND_SIGNALED)

    def post_receive(self) -> None:
        """Room for a message."""
        self.qp.post_recv(self._receive)

    def send(self) -> None:
        """64 bytes."""
        self.qp.post_send(self._send)

    def chain_to(self, peer: End) -> SendWR:
        """So many WRITEs of 64 bytes, of which the last is signaled."""
        head: SendWR | None = None
        for index in range(CHAIN):
            flags = IBV_SEND_SIGNALED if index == 0 else 0
            element = SGE(self.mr.buf, BYTES, self.mr.lkey)
            wr = SendWR(index, IBV_WR_RDMA_WRITE, 1, 0, [element], flags, head)
            wr.set_wr_rdma(peer.mr.rkey, peer.mr.buf)
            head = wr
        if head is None:
            raise RunError("a chain has requests")
        return head

    def take(self, count: int) -> None:
        """Wait, spinning, until so many have completed. RunError: one failed, or none comes."""
        until = time.monotonic() + _PATIENCE_S
        while count > 0:
            self._progress()
            got, completions = self.cq.poll(CHAIN)
            count -= got
            if any(wc.status != IBV_WC_SUCCESS for wc in completions):
                raise RunError(f"a request of the bench failed: {completions[0].status.name}")
            if not got and time.monotonic() > until:
                raise RunError("a request of the bench does not end")


@dataclasses.dataclass
class Ends:
    """Two connected ends."""

    first: End
    second: End

    @classmethod
    def connected(
        cls, contexts: Any, backups: Any = (None, None), progress: Callable[[], object] = int
    ) -> Ends:
        """Between two contexts; `progress` is called while completions are awaited."""
        first, second = (End(c, b, progress) for c, b in zip(contexts, backups, strict=True))
        first.qp.to_rts(qp_attr(second.qp, second.context))
        second.qp.to_rts(qp_attr(first.qp, first.context))
        return cls(first, second)

    def trips_per_second(self, trips: int, clock: Callable[[], float] = time.perf_counter) -> float:
        """Round trips of a SEND of 64 bytes, both ends in this thread."""
        first, second = self.first, self.second
        began = clock()
        for _ in range(trips):
            first.post_receive()
            second.post_receive()
            first.send()
            second.take(1)  # what has come
            second.send()
            first.take(2)  # our SEND, and what has come
            second.take(1)  # its SEND
        return trips / (clock() - began)

    def writes_per_second(
        self, chains: int, clock: Callable[[], float] = time.perf_counter
    ) -> float:
        """WRITEs of 64 bytes, in chains of 64."""
        chain = self.first.chain_to(self.second)
        began = clock()
        for _ in range(chains):
            self.first.qp.post_send(chain)
            self.first.take(1)
        return chains * CHAIN / (clock() - began)
