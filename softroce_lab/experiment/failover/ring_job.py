# SPDX-License-Identifier: GPL-2.0-or-later
"""A training-like job over verbs: steps of a ring all-reduce, and a model with a checksum.

A step adds the gradients of all hosts by reduce-scatter and all-gather (2(N-1) rounds), and the
model takes the sum. A round is a WRITE of a chunk into the right neighbour's memory in `PIECES`
pieces, and a WRITE with immediate that notifies it. Additions have one order, so that the model is
the same to the last bit at all hosts, and as `reference` computes it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

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
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WC_SUCCESS,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM,
    ibv_mtu,
)

Floats = npt.NDArray[np.float32]
MakeQp = Callable[[PD, QPInitAttr], QP]

PIECES = 4
PARITIES = 2  # a step's memory is used again after the next one
LEARNING_RATE = np.float32(0.01)
_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
_DEPTH = 256
_NAP_S = 0.0001


@dataclasses.dataclass(frozen=True)
class Job:
    """Its size: hosts, steps, and float32 values of the model (a multiple of hosts x PIECES)."""

    hosts: int
    steps: int
    values: int
    seed: int = 1
    timeout: int = 13  # 34 ms
    retry_cnt: int = 5  # of a machine that is busy, engines may stand still for long
    patience_s: float = 30.0  # for any one message

    @property
    def chunk(self) -> int:
        return self.values // self.hosts

    @property
    def rounds(self) -> int:
        return 2 * (self.hosts - 1)


def reaching(peer: QP, context: Context, **fields: int) -> QPAttr:
    return QPAttr(
        qp_access_flags=_ACCESS,
        path_mtu=ibv_mtu(context.query_port(1).active_mtu),
        ah_attr=AHAttr(is_global=1, gr=GlobalRoute(context.query_gid(1, 0))),
        dest_qp_num=peer.qp_num,
        rnr_retry=7,
        **fields,
    )


class StoppedError(RunError):
    """The job cannot go on; `status` names the completion that ended it."""


def gradient(job: Job, rank: int, step: int) -> Floats:
    stream = np.random.default_rng([job.seed, rank, step])
    return stream.standard_normal(job.values, np.float32)


def reference(job: Job) -> str:
    model = np.zeros(job.values, np.float32)
    for step in range(job.steps):
        gradients = [gradient(job, rank, step) for rank in range(job.hosts)]
        total = np.empty(job.values, np.float32)
        for chunk in range(job.hosts):
            part = slice(chunk * job.chunk, (chunk + 1) * job.chunk)
            added = gradients[chunk][part].copy()
            for hop in range(1, job.hosts):  # in the order of the ring
                added = gradients[(chunk + hop) % job.hosts][part] + added
            total[part] = added
        model -= LEARNING_RATE * total
    return checksum(model)


def checksum(model: Floats) -> str:
    return hashlib.sha256(model.tobytes()).hexdigest()


class Member:
    """A host of the ring: it sends to its right neighbour and receives from its left one."""

    def __init__(self, job: Job, rank: int, context: Context, make_qp: MakeQp) -> None:
        self.job, self.rank, self.context = job, rank, context
        self.pd = PD(context)
        self.values = np.zeros(job.values, np.float32)
        self.arrived = np.zeros((PARITIES, job.rounds, job.chunk), np.float32)
        self.mr = MR(self.pd, self.values, _ACCESS)
        self.arrivals = MR(self.pd, self.arrived.reshape(-1), _ACCESS)
        self.cq = CQ(context, 4 * _DEPTH)
        cap = QPCap(_DEPTH, _DEPTH, 1, 1, 0)
        self.right, self.left = (
            make_qp(self.pd, QPInitAttr(IBV_QPT_RC, None, self.cq, self.cq, None,
                                        dataclasses.replace(cap), 0))
            for _ in range(2)
        )  # fmt: skip
        self.model = np.zeros(job.values, np.float32)
        self.notified: list[int] = []
        self.sent = 0
        self.step_ends_ns: list[int] = []
        self.good_ns: list[int] = []  # when completions were seen, all of them good
        self.error: str | None = None
        self.stopping: Callable[[], bool] = lambda: False
        self.now_ns: Callable[[], int] = time.monotonic_ns

    # ---------------------------------------------------------------- connecting

    def connect(self, left: Member, right: Member) -> None:
        """Both QPs to RTS, with receives for the first notifications."""
        self.right.to_rts(self._attr(right.left, right.context))
        self.left.to_rts(self._attr(left.right, left.context))
        for _ in range(_DEPTH // 2):
            self._post_receive()
        self._target = (right.arrivals.rkey, right.arrivals.buf)

    def _attr(self, peer: QP, context: Context) -> QPAttr:
        return reaching(
            peer, context, timeout=self.job.timeout, retry_cnt=self.job.retry_cnt, min_rnr_timer=12
        )

    def _post_receive(self) -> None:
        self.left.post_recv(RecvWR(0, 1, [SGE(self.mr.buf, 0, self.mr.lkey)]))

    # ---------------------------------------------------------------- a step

    def run(self, on_step: Callable[[int, int], None]) -> None:
        """All steps, on the real clock. StoppedError: one fails."""
        for _ in self.steps(on_step):
            time.sleep(_NAP_S)

    def steps(self, on_step: Callable[[int, int], None]) -> Iterator[None]:
        """All steps; `on_step(rank, step)` is called before each. StoppedError: one fails.

        It comes back whenever it waits, and is to be asked again after a while.
        """
        for step in range(self.job.steps):
            on_step(self.rank, step)
            yield from self._all_reduce(step)
            self.model -= LEARNING_RATE * self.values
            self.step_ends_ns.append(self.now_ns())

    def _all_reduce(self, step: int) -> Iterator[None]:
        job, parity = self.job, step % PARITIES
        self.values[:] = gradient(job, self.rank, step)
        for number in range(job.rounds):
            reducing = number < job.hosts - 1
            hop = number if reducing else number - (job.hosts - 1)
            outgoing = (self.rank - hop + (0 if reducing else 1)) % job.hosts
            self._send(step, number, outgoing)
            yield from self._await(step * job.rounds + number)
            incoming = self._chunk((outgoing - 1) % job.hosts)
            if reducing:
                incoming += self.arrived[parity, number]
            else:
                incoming[:] = self.arrived[parity, number]

    def _chunk(self, number: int) -> Floats:
        return self.values[number * self.job.chunk : (number + 1) * self.job.chunk]

    def _send(self, step: int, number: int, chunk: int) -> None:
        job = self.job
        rkey, base = self._target
        slot = (step % PARITIES * job.rounds + number) * job.chunk * 4
        piece = job.chunk * 4 // PIECES
        notice = SendWR(
            self.sent, IBV_WR_RDMA_WRITE_WITH_IMM, 1, socket.htonl(step * job.rounds + number),
            [SGE(self.mr.buf, 0, self.mr.lkey)], IBV_SEND_SIGNALED,
        )  # fmt: skip
        notice.set_wr_rdma(rkey, base + slot)
        head: SendWR = notice
        for index in reversed(range(PIECES)):
            at = chunk * job.chunk * 4 + index * piece
            wr = SendWR(self.sent, IBV_WR_RDMA_WRITE, 1, 0,
                        [SGE(self.mr.buf + at, piece, self.mr.lkey)], 0, head)  # fmt: skip
            wr.set_wr_rdma(rkey, base + slot + index * piece)
            head = wr
        self.right.post_send(head)
        self.sent += 1

    def _await(self, notice: int) -> Iterator[None]:
        """Until this notification is here, and what was sent is done."""
        until_ns = self.now_ns() + int(self.job.patience_s * 1e9)
        done = False
        while len(self.notified) <= notice or not done:
            _, completions = self.cq.poll(64)
            for wc in completions:
                done |= self._take(wc)
            if not completions:
                if self.stopping():
                    raise StoppedError("another host of the ring has stopped")
                if self.now_ns() > until_ns:
                    raise StoppedError(f"nothing has come for {self.job.patience_s:g} s")
                yield

    def _take(self, wc: Any) -> bool:
        """Whether it is of what was sent."""
        if wc.status != IBV_WC_SUCCESS:
            raise StoppedError(f"{wc.status.name} of request {wc.wr_id}")
        self.good_ns.append(self.now_ns())
        if wc.opcode < 128:
            return bool(wc.wr_id == self.sent - 1)
        self.notified.append(socket.ntohl(wc.imm_data))
        self._post_receive()
        return False

    def in_order(self) -> bool:
        return self.notified == list(range(len(self.notified)))
