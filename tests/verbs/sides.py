# SPDX-License-Identifier: GPL-2.0-or-later
"""Two ends of a conversation over any service, each with memory between guards."""

import itertools

import numpy as np

from softroce_lab.verbs import (
    AH,
    CQ,
    GRH_BYTES,
    MR,
    PD,
    QP,
    SGE,
    AHAttr,
    GlobalRoute,
    PyverbsRDMAError,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
)
from softroce_lab.verbs.enums import *

ALL_ACCESS = (
    IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
)
ATOMICS = (IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD)
REMOTE = (IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ)
SERVICES = (IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD)

BYTES = 65536
GUARD = 0x5A
GUARD_BYTES = 4096
QKEY = 0x22222222
MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000 * MILLISECOND_NS

_seeds = itertools.count(1)


class Side:
    """Everything down to a queue pair in RESET; `connect` brings two of them to RTS."""

    def __init__(self, context, qp_type=IBV_QPT_RC, *, access=ALL_ACCESS, cqe=256, channel=None,
                 cap=None, srq=None, pd=None, **init):  # fmt: skip
        self.context = context
        self.pd = pd or PD(context)
        self.cq = CQ(context, cqe, channel=channel)
        self.guarded = np.full(BYTES + 2 * GUARD_BYTES, GUARD, np.uint8)
        self.memory = self.guarded[GUARD_BYTES:-GUARD_BYTES]
        self.memory[:] = 0
        self.mr = MR(self.pd, self.memory, access)
        self.psn = 0xFFFFF0 + next(_seeds) % 32  # wraps, sooner or later
        cap = cap or QPCap(max_send_wr=64, max_recv_wr=64, max_send_sge=8, max_recv_sge=8,
                           max_inline_data=512)  # fmt: skip
        made_of = {"sq_sig_all": 0} | init
        self.qp = QP(self.pd, QPInitAttr(qp_type, None, self.cq, self.cq, srq, cap, **made_of))

    # ---------------------------------------------------------------- states

    def route_to(self, other):
        gid = other.context.query_gid(1, 0)
        return AHAttr(is_global=1, gr=GlobalRoute(dgid=gid))

    def attr(self, other, **fields):
        """What connects this side to the other."""
        attr = QPAttr(
            qp_access_flags=ALL_ACCESS,
            qkey=QKEY,
            ah_attr=self.route_to(other),
            dest_qp_num=other.qp.qp_num,
            sq_psn=self.psn,
            rq_psn=other.psn,
            max_rd_atomic=4,
            max_dest_rd_atomic=4,
            min_rnr_timer=1,  # 10 us
            timeout=8,  # 1 ms
            retry_cnt=3,
            rnr_retry=3,
        )
        for name, value in fields.items():
            setattr(attr, name, value)
        return attr

    @property
    def state(self):
        return self.qp.qp_state

    # ---------------------------------------------------------------- requests

    def sge(self, length, offset=0):
        return SGE(self.mr.buf + offset, length, self.mr.lkey)

    def request(self, opcode, other, length, offset=0, *, to=0, rkey=None, remote_addr=None,
                qkey=QKEY, add=0, swap=0, sg=None, send_flags=IBV_SEND_SIGNALED,
                **options):  # fmt: skip
        """A request for the other side's memory at `to`, or its queue of receives."""
        sg = sg or [self.sge(length, offset)]
        wr = SendWR(opcode=opcode, num_sge=len(sg), sg=sg, send_flags=send_flags, **options)
        rkey = other.mr.rkey if rkey is None else rkey
        remote_addr = other.mr.buf + to if remote_addr is None else remote_addr
        if opcode in REMOTE:
            wr.set_wr_rdma(rkey, remote_addr)
        elif opcode in ATOMICS:
            wr.set_wr_atomic(rkey, remote_addr, add, swap)
        if self.qp.qp_type == IBV_QPT_UD:
            wr.set_wr_ud(AH(self.pd, attr=self.route_to(other)), other.qp.qp_num, qkey)
        return wr

    def post(self, opcode, other, length, offset=0, **options):
        self.qp.post_send(self.request(opcode, other, length, offset, **options))

    def receive(self, length, offset=0, *, wr_id=0, srq=None):
        """Room for so many bytes of message, behind the GRH of a datagram."""
        (srq or self.qp).post_recv(RecvWR(wr_id, 1, [self.sge(length + self.head, offset)]))

    @property
    def head(self):
        """What stands before a message in its receive."""
        return GRH_BYTES if self.qp.qp_type == IBV_QPT_UD else 0

    # ---------------------------------------------------------------- what came of it

    def poll(self):
        return self.cq.poll(1 << 16)[1]

    def ends(self):
        """(wr_id, status) of what has completed since the last look."""
        return [(each.wr_id, each.status) for each in self.poll()]

    def events(self):
        """Types of the asynchronous events since the last look."""
        types = []
        while True:
            event = self.next_event()
            if event is None:
                return types
            types.append(event.event_type)

    def next_event(self):
        try:
            return self.context.get_async_event(0)
        except PyverbsRDMAError:
            return None

    def guards_stand(self):
        return (self.guarded[:GUARD_BYTES] == GUARD).all() and (
            self.guarded[-GUARD_BYTES:] == GUARD
        ).all()

    def fill(self, seed=0):
        self.memory[:] = np.random.default_rng(seed).integers(0, 256, BYTES, np.uint8)
        return bytes(self.memory)


def connect(first, second, **fields):
    """Bring both to RTS."""
    for side, other in ((first, second), (second, first)):
        side.qp.to_rts(side.attr(other, **fields))


def connected(contexts, qp_type=IBV_QPT_RC, *, attr=None, **options):
    """Two sides in RTS."""
    sides = [Side(context, qp_type, **options) for context in contexts]
    connect(*sides, **(attr or {}))
    return sides


def run(pair, ns=10 * MILLISECOND_NS):
    pair.run(pair.now_ns + ns)
