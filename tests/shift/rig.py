# SPDX-License-Identifier: GPL-2.0-or-later
"""Two hosts with two NICs each: two pairs of RNICs whose clocks advance together."""

import dataclasses

import numpy as np

from softroce_lab import _native
from softroce_lab.rnic import (
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
from softroce_lab.rnic.enums import (
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
from softroce_lab.shift import Backup, LocalStore, Settings, ShiftQP
from softroce_lab.shift.states import Sender

ACCESS = (
    IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
)
ADDRESSES = ((0x0A000001, 0x0A000002), (0x0A010001, 0x0A010002))  # by rail
BYTES = 1 << 17
DELAY_NS, PACKET_NS = 1000, 100
TIMEOUT, RETRIES = 3, 1  # 32.8 us, up to four times it; tried twice
DETECTION_NS = (4096 << TIMEOUT) * 4 * (RETRIES + 1)
STEP_NS = 2_000
ENDLESS = 2**64 - 1
SETTINGS = Settings(
    handshake_timeout_ns=5_000_000,
    probe_interval_ns=100_000,
    most_probe_interval_ns=1_600_000,
    drain_timeout_ns=2_000_000,
)


def config(address):
    made = _native.MessageConfig()
    made.address = address
    return made


class End:
    """A host: contexts of both rails, a region, a queue, a QP."""

    def __init__(self, rig, which, *, shift, settings, cap, sig_all, in_background):
        self.rig, self.which = rig, which
        self.contexts = [Context(pair.side(which)) for pair in rig.pairs]
        self.context = self.contexts[0]
        self.backup = None
        if shift:
            self.backup = Backup(*self.contexts, rig.store, settings, in_background=in_background)
        self.pd = PD(self.context)
        self.memory = np.zeros(BYTES, np.uint8)
        self.mr = MR(self.pd, self.memory, ACCESS)
        self.cq = CQ(self.context, 1 << 12)
        init = QPInitAttr(IBV_QPT_RC, None, self.cq, self.cq, None, cap, sig_all)
        self.qp = ShiftQP(self.pd, init, backup=self.backup) if shift else QP(self.pd, init)

    def attr(self, other, **fields):
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

    def request(self, opcode, length, offset=0, *, to=0, wr_id=0, imm=0, flags=IBV_SEND_SIGNALED,
                add=1, rkey=None):  # fmt: skip
        other = self.rig.ends[1 - self.which]
        wr = SendWR(wr_id, opcode, 1, imm, [SGE(self.mr.buf + offset, length, self.mr.lkey)], flags)
        rkey = other.mr.rkey if rkey is None else rkey
        if opcode in (IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP):
            wr.set_wr_atomic(rkey, other.mr.buf + to, add)
        elif opcode not in (IBV_WR_SEND, IBV_WR_SEND_WITH_IMM):
            wr.set_wr_rdma(rkey, other.mr.buf + to)
        return wr

    def post(self, opcode, length, offset=0, **options):
        self.qp.post_send(self.request(opcode, length, offset, **options))

    def receive(self, length, offset=0, wr_id=0):
        self.qp.post_recv(RecvWR(wr_id, 1, [SGE(self.mr.buf + offset, length, self.mr.lkey)]))

    def poll(self):
        return self.cq.poll(1 << 10)[1]

    @property
    def state(self):
        return self.qp.machine.sender


class Rig:
    """Both ends, connected."""

    def __init__(self, *, shift=True, settings=SETTINGS, cap=None, sig_all=0, seed=1,
                 in_background=False, **attr):  # fmt: skip
        self.pairs = [
            _native.Pair(*(config(each) for each in addresses), seed) for addresses in ADDRESSES
        ]
        for pair in self.pairs:
            for side in range(2):
                pair.cable(side).delay_ns = DELAY_NS
                pair.cable(side).packet_time_ns = PACKET_NS
        self.store = LocalStore()
        cap = cap or QPCap(64, 64, 4, 4, 256)
        self.ends = [
            End(self, which, shift=shift, settings=settings, sig_all=sig_all,
                in_background=in_background, cap=dataclasses.replace(cap))
            for which in range(2)
        ]  # fmt: skip
        for end, other in (self.ends, reversed(self.ends)):
            end.qp.to_rts(end.attr(other, **attr))
        self.shift = shift

    @property
    def now_ns(self):
        return self.pairs[0].now_ns

    def step(self, ns=STEP_NS):
        until = self.now_ns + ns
        for pair in self.pairs:
            pair.run(until)
        for end in self.ends:
            if end.backup is not None:
                end.backup.advance()

    def run(self, ns):
        until = self.now_ns + ns
        while self.now_ns < until:
            self.step()

    def until(self, condition, ns):
        """Whether it came true in time."""
        end = self.now_ns + ns
        while not condition():
            if self.now_ns >= end:
                return False
            self.step()
        return True

    def cut(self, rail=0, down=True):
        for side in range(2):
            cable = self.pairs[rail].cable(side)
            cable.down, cable.carries = down, ENDLESS

    def is_default(self):
        return all(end.state is Sender.DEFAULT and end.qp.machine.plain for end in self.ends)

    def close(self):
        for end in self.ends:
            for context in end.contexts:
                context.close()
