# SPDX-License-Identifier: GPL-2.0-or-later
"""The two hosts of a failover: memory, queue pairs, and what h1 posts."""

from __future__ import annotations

import socket
from typing import Any

import numpy as np

from softroce_lab.learn.failover.scene import PostedRequest, Scene
from softroce_lab.transports.shift import SEND_ONCE, Backup, ShiftQP
from softroce_lab.verbs import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    WC,
    AHAttr,
    Context,
    GlobalRoute,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    enums,
)

OPCODES = {
    "WRITE": enums.IBV_WR_RDMA_WRITE,
    "WRITE_IMM": enums.IBV_WR_RDMA_WRITE_WITH_IMM,
    "SEND": enums.IBV_WR_SEND,
    "READ": enums.IBV_WR_RDMA_READ,
    "ADD": enums.IBV_WR_ATOMIC_FETCH_AND_ADD,
}
READ_VALUE = 0x33

# Places in a host's memory. A request has a slot by its number.
_SLOT_BYTES, _BYTES, _RECEIVE_SLOTS = 2048, 1 << 18, 32
_SOURCES, _RECEIVES, _COUNTER = 32768, 65536, 1 << 17
_TO_READ = _COUNTER + _SLOT_BYTES
_ACCESS = (
    enums.IBV_ACCESS_LOCAL_WRITE
    | enums.IBV_ACCESS_REMOTE_WRITE
    | enums.IBV_ACCESS_REMOTE_READ
    | enums.IBV_ACCESS_REMOTE_ATOMIC
)


class Host:
    """A host: memory, a completion queue, and a queue pair, which `backup` makes a ShiftQP."""

    def __init__(self, number: int, context: Context, backup: Backup | None) -> None:
        self.number, self.context, self.backup = number, context, backup
        self._pd = PD(context)
        self.memory = np.zeros(_BYTES, np.uint8)
        self.memory[_TO_READ : _TO_READ + _SLOT_BYTES] = READ_VALUE
        self.mr = MR(self._pd, self.memory, _ACCESS)
        self._cq = CQ(context, 1 << 10)
        cap = QPCap(64, 64, 4, 4, 256)
        init = QPInitAttr(enums.IBV_QPT_RC, None, self._cq, self._cq, None, cap, 0)
        self.qp: Any = QP(self._pd, init) if backup is None else ShiftQP(
            self._pd, init, backup=backup
        )  # fmt: skip
        self._posted_receives = 0

    @property
    def machine(self) -> Any:
        """The machine of its ShiftQP, or None."""
        return self.qp.machine if isinstance(self.qp, ShiftQP) else None

    def connect(self, other: Host, scene: Scene) -> None:
        """To RTS. A receive is there in time or the request fails: nothing is retried for it."""
        route = AHAttr(is_global=1, gr=GlobalRoute(dgid=other.context.query_gid(1, 0)))
        self.qp.to_rts(
            QPAttr(
                qp_access_flags=_ACCESS, ah_attr=route, dest_qp_num=other.qp.qp_num,
                sq_psn=1000 * (1 + self.number), rq_psn=1000 * (1 + other.number),
                max_rd_atomic=4, max_dest_rd_atomic=4, min_rnr_timer=1, timeout=scene.timeout,
                retry_cnt=scene.retries, rnr_retry=0,
            )
        )  # fmt: skip

    def post(self, request: PostedRequest, other: Host) -> None:
        """Post a request; its bytes tell its number."""
        source = self.source(request)
        if request.kind not in ("READ", "ADD"):
            self.memory[source] = value(request.number)
        flags = enums.IBV_SEND_SIGNALED | (SEND_ONCE if request.once else 0)
        sge = [SGE(self.mr.buf + source.start, request.length_bytes, self.mr.lkey)]
        imm = socket.htonl(request.number)
        wr = SendWR(request.number, OPCODES[request.kind], 1, imm, sge, flags)
        if request.kind == "ADD":
            wr.set_wr_atomic(other.mr.rkey, other.mr.buf + _COUNTER, 1)
        elif request.kind == "READ":
            wr.set_wr_rdma(other.mr.rkey, other.mr.buf + _TO_READ)
        elif request.kind != "SEND":
            wr.set_wr_rdma(other.mr.rkey, other.mr.buf + target(request).start)
        self.qp.post_send(wr)

    def post_receive(self) -> None:
        """Post a receive with room of its own."""
        number = self._posted_receives
        self._posted_receives += 1
        at = self.mr.buf + _RECEIVES + number % _RECEIVE_SLOTS * _SLOT_BYTES
        self.qp.post_recv(RecvWR(number, 1, [SGE(at, _SLOT_BYTES, self.mr.lkey)]))

    def poll(self) -> list[WC]:
        """Completions since the last time."""
        completions: list[WC] = self._cq.poll(1 << 8)[1]
        return completions

    def number_of(self, completion: WC) -> int:
        """The request that a completed receive was notified of."""
        if completion.wc_flags & enums.IBV_WC_WITH_IMM:
            return int(socket.ntohl(completion.imm_data))
        at = _RECEIVES + completion.wr_id % _RECEIVE_SLOTS * _SLOT_BYTES
        return int(self.memory[at]) - 1

    def source(self, request: PostedRequest) -> slice:
        """Where the bytes of a request are at the host that posts it."""
        at = _SOURCES + request.number * _SLOT_BYTES
        return slice(at, at + request.length_bytes)

    @property
    def counter(self) -> int:
        """The counter that ADDs change."""
        return int.from_bytes(self.memory[_COUNTER : _COUNTER + 8].tobytes(), "little")


def target(request: PostedRequest) -> slice:
    """Where a WRITE puts its bytes at the other host."""
    at = request.number * _SLOT_BYTES
    return slice(at, at + request.length_bytes)


def value(number: int) -> int:
    """The byte that a request writes everywhere."""
    return number + 1
