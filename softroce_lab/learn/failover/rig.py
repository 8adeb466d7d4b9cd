# SPDX-License-Identifier: GPL-2.0-or-later
"""Two hosts with two NICs each, in memory, and how the first rail dies."""

from __future__ import annotations

import socket
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from softroce_lab.learn.failover.machine import Decided, Hooks
from softroce_lab.learn.failover.scene import Asked, Scene
from softroce_lab.rnic import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    WC,
    AHAttr,
    GlobalRoute,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
)
from softroce_lab.rnic.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WR_ATOMIC_FETCH_AND_ADD,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_SEND,
)
from softroce_lab.shift import SEND_ONCE, Backup, Settings, ShiftQP
from softroce_lab.shift.rails import Rails

OPCODES = {
    "WRITE": IBV_WR_RDMA_WRITE,
    "WRITE_IMM": IBV_WR_RDMA_WRITE_WITH_IMM,
    "SEND": IBV_WR_SEND,
    "READ": IBV_WR_RDMA_READ,
    "ADD": IBV_WR_ATOMIC_FETCH_AND_ADD,
}
SLOT_BYTES, BYTES, BUFFERS = 2048, 1 << 18, 32
SOURCES, RECEIVES, COUNTER, TO_READ = 32768, 65536, 1 << 17, (1 << 17) + SLOT_BYTES  # offsets
READ_VALUE = 0x33
_PACKET_NS = 100
_ACCESS = (
    IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
)
_SETTINGS = Settings(handshake_timeout_ns=5_000_000, probe_interval_ns=1_000_000_000)


class End:
    """A host: contexts of both NICs, memory, a completion queue, a queue pair."""

    def __init__(self, rig: Rig, which: int) -> None:
        self.which = which
        self.context = rig.contexts[which][0]
        self.pd = PD(self.context)
        self.memory = np.zeros(BYTES, np.uint8)
        self.mr = MR(self.pd, self.memory, _ACCESS)
        self.cq = CQ(self.context, 1 << 10)
        cap = QPCap(64, 64, 4, 4, 256)
        init = QPInitAttr(IBV_QPT_RC, None, self.cq, self.cq, None, cap, 0)
        self.backup: Backup | None = None
        if not rig.with_backup:
            self.qp: QP = QP(self.pd, init)
            return
        self.backup = rig.backup(which, _SETTINGS)
        qp = ShiftQP(self.pd, init, backup=self.backup)
        self.qp = qp
        if rig.hooks is not None:
            hooks = rig.hooks(which)
            face: Any = weakref.proxy(qp)
            qp.machine = Decided(face, qp.qp_num, _SETTINGS, hooks)

    @property
    def machine(self) -> Any:
        """Of its ShiftQP."""
        return self.qp.machine if isinstance(self.qp, ShiftQP) else None

    def connect(self, other: End, scene: Scene) -> None:
        """To RTS. A receive is there in time, or the request fails: no retries for it."""
        route = AHAttr(is_global=1, gr=GlobalRoute(dgid=other.context.query_gid(1, 0)))
        self.qp.to_rts(
            QPAttr(
                qp_access_flags=_ACCESS, ah_attr=route, dest_qp_num=other.qp.qp_num,
                sq_psn=1000 * (1 + self.which), rq_psn=1000 * (1 + other.which), max_rd_atomic=4,
                max_dest_rd_atomic=4, min_rnr_timer=1, timeout=scene.timeout,
                retry_cnt=scene.retries, rnr_retry=0,
            )
        )  # fmt: skip

    def post(self, asked: Asked, other: End) -> None:
        """A request of its number; its bytes tell which."""
        at = SOURCES + asked.number * SLOT_BYTES
        length = asked.length_bytes
        if asked.kind not in ("READ", "ADD"):
            self.memory[at : at + length] = value(asked.number)
        flags = IBV_SEND_SIGNALED | (SEND_ONCE if asked.once else 0)
        sge = [SGE(self.mr.buf + at, length, self.mr.lkey)]
        imm = socket.htonl(asked.number)
        wr = SendWR(asked.number, OPCODES[asked.kind], 1, imm, sge, flags)
        if asked.kind == "ADD":
            wr.set_wr_atomic(other.mr.rkey, other.mr.buf + COUNTER, 1)
        elif asked.kind == "READ":
            wr.set_wr_rdma(other.mr.rkey, other.mr.buf + TO_READ)
        elif asked.kind != "SEND":
            wr.set_wr_rdma(other.mr.rkey, other.mr.buf + asked.number * SLOT_BYTES)
        self.qp.post_send(wr)

    def post_receive(self, number: int) -> None:
        """With room of its own."""
        at = self.mr.buf + RECEIVES + number % BUFFERS * SLOT_BYTES
        self.qp.post_recv(RecvWR(number, 1, [SGE(at, SLOT_BYTES, self.mr.lkey)]))

    def poll(self) -> list[WC]:
        """Completions since the last time."""
        found: list[WC] = self.cq.poll(1 << 8)[1]
        return found


def value(number: int) -> int:
    """The byte that a request writes everywhere."""
    return number + 1


class Rig(Rails):
    """Both ends, connected."""

    def __init__(
        self, scene: Scene, hooks: Callable[[int], Hooks] | None, *, with_backup: bool = True
    ) -> None:
        """`hooks` of each host; None: SHIFT decides."""
        super().__init__(delay_ns=scene.delay_ns, packet_time_ns=_PACKET_NS)
        self.scene, self.hooks, self.with_backup = scene, hooks, with_backup
        self.ends = [End(self, which) for which in range(2)]
        self.ends[1].memory[TO_READ : TO_READ + SLOT_BYTES] = READ_VALUE
        for end, other in (self.ends, reversed(self.ends)):
            end.connect(other, scene)
        self._held: list[bytes] = []
        self._sent = 0
        self.pairs[0].keep_sent()
        dying = 1 if scene.dies == "acknowledgements" else 0
        self.pairs[0].cable(dying).carries = scene.after

    def deliver_late(self, host: int) -> None:
        """A switch delivers to h2 what it held, if this scene has it do so."""
        for _, side, frame in self.pairs[0].take_sent():
            if side == 0:
                self._sent += 1
                if self._sent > self.scene.after:
                    self._held.append(bytes(frame))
        if self.scene.dies != "late" or host != 1:
            return
        for frame in self._held:
            self.pairs[0].inject(1, frame)
