# SPDX-License-Identifier: GPL-2.0-or-later
"""Two hosts with two NICs each, whose ends may fail over."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from softroce_lab.transports.shift import Backup, Sender, Settings, ShiftQP
from softroce_lab.transports.shift.rails import Rails
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
from softroce_lab.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD,
    IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,
)

ACCESS = (
    IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
)
BYTES = 1 << 17
DELAY_NS, PACKET_NS = 1000, 100
TIMEOUT, RETRIES = 3, 1  # 32.8 us, up to four times it; tried twice
DETECTION_NS = (4096 << TIMEOUT) * 4 * (RETRIES + 1)
STEP_NS = 2_000
SETTINGS = Settings(
    handshake_timeout_ns=5_000_000,
    probe_interval_ns=100_000,
    most_probe_interval_ns=1_600_000,
    drain_timeout_ns=2_000_000,
)


class End:
    """A host: contexts of both rails, a region, a queue, a QP, which `backup` makes a ShiftQP."""

    def __init__(self, rig: Rig, which: int, backup: Backup | None) -> None:
        self.rig, self.which, self.backup = rig, which, backup
        self.contexts = rig.contexts[which]
        self.context = self.contexts[0]
        self.pd = PD(self.context)
        self.memory = np.zeros(BYTES, np.uint8)
        self.mr = MR(self.pd, self.memory, ACCESS)
        self.cq = CQ(self.context, 1 << 12)
        cap = QPCap(64, 64, 4, 4, 256)
        init = QPInitAttr(IBV_QPT_RC, None, self.cq, self.cq, None, cap, 0)
        self.qp: Any = QP(self.pd, init) if backup is None else ShiftQP(
            self.pd, init, backup=backup
        )  # fmt: skip

    def attr(self, other: End, **fields: Any) -> QPAttr:
        """What connects it with the other end; some fields otherwise."""
        gid = other.context.query_gid(1, 0)
        attr = QPAttr(
            qp_access_flags=ACCESS,
            ah_attr=AHAttr(is_global=1, gr=GlobalRoute(dgid=gid)),
            dest_qp_num=other.qp.qp_num,
            sq_psn=0xFFFFF0 + self.which,
            rq_psn=0xFFFFF0 + other.which,
            max_rd_atomic=4,
            max_dest_rd_atomic=4,
            min_rnr_timer=1,
            timeout=TIMEOUT,
            retry_cnt=RETRIES,
            rnr_retry=7,
        )
        return dataclasses.replace(attr, **fields)

    def request(
        self,
        opcode: int,
        length: int,
        offset: int = 0,
        *,
        to: int = 0,
        wr_id: int = 0,
        imm: int = 0,
        flags: int = IBV_SEND_SIGNALED,
        rkey: int | None = None,
    ) -> SendWR:
        """A request of bytes at `offset`; one-sided ones go to offset `to` of the other end."""
        other = self.rig.ends[1 - self.which]
        wr = SendWR(wr_id, opcode, 1, imm, [SGE(self.mr.buf + offset, length, self.mr.lkey)], flags)
        rkey = other.mr.rkey if rkey is None else rkey
        if opcode in (IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP):
            wr.set_wr_atomic(rkey, other.mr.buf + to, 1)
        elif opcode not in (IBV_WR_SEND, IBV_WR_SEND_WITH_IMM):
            wr.set_wr_rdma(rkey, other.mr.buf + to)
        return wr

    def post(self, opcode: int, length: int, offset: int = 0, **options: Any) -> None:
        """Post such a request."""
        self.qp.post_send(self.request(opcode, length, offset, **options))

    def receive(self, length: int, offset: int = 0, wr_id: int = 0) -> None:
        """Post a receive into bytes at `offset`."""
        self.qp.post_recv(RecvWR(wr_id, 1, [SGE(self.mr.buf + offset, length, self.mr.lkey)]))

    def poll(self) -> list[Any]:
        """All completions that wait."""
        return list(self.cq.poll(1 << 10)[1])

    @property
    def state(self) -> Sender:
        """Of its sending side."""
        return self.qp.sender


class Rig(Rails):
    """Both ends, connected; `attr`: fields of both QPs' attributes that are otherwise."""

    def __init__(
        self,
        *,
        shift: bool = True,
        settings: Settings = SETTINGS,
        delay_ns: int = DELAY_NS,
        seed: int = 1,
        in_background: bool = False,
        **attr: Any,
    ) -> None:
        super().__init__(delay_ns=delay_ns, packet_time_ns=PACKET_NS, seed=seed)
        self.ends = [
            End(self, which, self.backup(which, settings, in_background=in_background)
                if shift else None)
            for which in range(2)
        ]  # fmt: skip
        for end, other in (self.ends, reversed(self.ends)):
            end.qp.to_rts(end.attr(other, **attr))

    def step(self, ns: int = STEP_NS) -> None:
        """Let so much time pass, then do what is due."""
        self.pass_time(ns)
        self.advance()

    def run(self, ns: int) -> None:
        """So many steps."""
        until = self.now_ns + ns
        while self.now_ns < until:
            self.step()

    def until(self, condition: Callable[[], bool], ns: int) -> bool:
        """Whether it came true in time."""
        end = self.now_ns + ns
        while not condition():
            if self.now_ns >= end:
                return False
            self.step()
        return True

    def is_default(self) -> bool:
        """Whether both ends are back on the first rail."""
        return all(end.state is Sender.DEFAULT and end.qp.plain for end in self.ends)
