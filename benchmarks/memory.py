# SPDX-License-Identifier: GPL-2.0-or-later
"""RC queue pairs between RNICs in this process's memory, for several benchmarks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from softroce_lab import _native
from softroce_lab.errors import RunError
from softroce_lab.verbs import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AHAttr,
    Context,
    GlobalRoute,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
)
from softroce_lab.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_MTU_1024,
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WC_SUCCESS,
    IBV_WR_RDMA_WRITE,
    IBV_WR_SEND,
)

ADDRESSES = (0x0A000001, 0x0A000002)
BYTES, CHAIN = 64, 64
_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
_STEP_NS = 2_000
_PATIENCE = 100_000  # polls without a completion

MakeQp = Callable[[PD, QPInitAttr], QP]


def config(address: int, **settings: object) -> Any:
    """Of an RNIC with this address."""
    made = _native.MessageConfig()
    made.address = address
    for name, value in settings.items():
        setattr(made, name, value)
    return made


class End:
    """A queue pair with memory and a completion queue."""

    def __init__(self, context: Context, make: MakeQp = QP) -> None:
        self.context, pd = context, PD(context)
        self.mr = MR(pd, 1 << 16, _ACCESS)
        self.cq = CQ(context, 1024)
        self.qp = make(
            pd, QPInitAttr(IBV_QPT_RC, None, self.cq, self.cq, None, QPCap(256, 256, 1, 1, 0), 0)
        )
        piece = SGE(self.mr.buf, BYTES, self.mr.lkey)
        self.receive = RecvWR(0, 1, [piece])
        self.send = SendWR(0, IBV_WR_SEND, 1, 0, [piece], IBV_SEND_SIGNALED)

    def connect(self, peer: End) -> None:
        """To RTS."""
        route = AHAttr(is_global=1, gr=GlobalRoute(dgid=peer.context.query_gid(1, 0)))
        self.qp.to_rts(
            QPAttr(path_mtu=IBV_MTU_1024, qp_access_flags=_ACCESS, ah_attr=route,
                   dest_qp_num=peer.qp.qp_num, max_rd_atomic=1, max_dest_rd_atomic=1, timeout=12,
                   retry_cnt=7, rnr_retry=7, min_rnr_timer=1)
        )  # fmt: skip

    def chain_to(self, peer: End) -> SendWR:
        """WRITEs of 64 bytes, of which the last is signaled."""
        head = self._write_to(peer, IBV_SEND_SIGNALED, None)
        for _ in range(CHAIN - 1):
            head = self._write_to(peer, 0, head)
        return head

    def _write_to(self, peer: End, flags: int, following: SendWR | None) -> SendWR:
        piece = SGE(self.mr.buf, BYTES, self.mr.lkey)
        wr = SendWR(0, IBV_WR_RDMA_WRITE, 1, 0, [piece], flags, following)
        wr.set_wr_rdma(peer.mr.rkey, peer.mr.buf)
        return wr


class Ends:
    """Two connected ends on a pair of RNICs."""

    def __init__(self, pair: Any, contexts: Any, makes: tuple[MakeQp, MakeQp] = (QP, QP)) -> None:
        self._pair = pair
        self.first, self.second = (End(c, m) for c, m in zip(contexts, makes, strict=True))
        self.first.connect(self.second)
        self.second.connect(self.first)

    def _take(self, end: End, count: int) -> None:
        """Wait until so many have completed. RunError."""
        for _ in range(_PATIENCE):
            self._pair.run(self._pair.now_ns + _STEP_NS)
            got, completions = end.cq.poll(CHAIN)
            if any(each.status != IBV_WC_SUCCESS for each in completions):
                raise RunError(f"a request failed: {completions[0].status.name}")
            count -= got
            if count <= 0:
                return
        raise RunError("a request does not end")

    def trips_per_cpu_s(self, trips: int) -> float:
        """Round trips of a SEND of 64 bytes."""
        first, second = self.first, self.second
        began = time.process_time()
        for _ in range(trips):
            first.qp.post_recv(first.receive)
            second.qp.post_recv(second.receive)
            first.qp.post_send(first.send)
            self._take(second, 1)  # what has arrived
            second.qp.post_send(second.send)
            self._take(first, 2)  # the SEND, and what has arrived
            self._take(second, 1)  # the SEND
        return trips / (time.process_time() - began)

    def writes_per_cpu_s(self, chains: int) -> float:
        """WRITEs of 64 bytes, in chains of 64."""
        chain = self.first.chain_to(self.second)
        began = time.process_time()
        for _ in range(chains):
            self.first.qp.post_send(chain)
            self._take(self.first, 1)
        return chains * CHAIN / (time.process_time() - began)


class InMemory:
    """A pair of RNICs with two connected ends."""

    def __init__(self) -> None:
        self.pair = _native.Pair(*map(config, ADDRESSES), 1)
        self.endpoints = [self.pair.side(which) for which in range(2)]
        self.ends = Ends(self.pair, [Context(each) for each in self.endpoints])
