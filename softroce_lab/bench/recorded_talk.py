# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes captures of any length without a network: two RNICs in memory talk, a tap writes it down.

Two conversations, both with losses behind the tap, which they recover from:

    rc      an RC queue pair: WRITEs, SENDs and READs
    csa_ud  striped messages, and the policy of that name at both ends

Files are pcap with nanoseconds; frames are whole. A seed makes the same packets each time, but for
the addresses of memory in those of RC.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from softroce_lab import _native
from softroce_lab.errors import RunError
from softroce_lab.recovery import registry
from softroce_lab.rnic import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AHAttr,
    Context,
    GlobalRoute,
    MessageEndpoint,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
)
from softroce_lab.rnic.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_MTU_256,
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
    IBV_WR_SEND,
)

Sent: TypeAlias = "list[tuple[int, int, bytes]]"  # time in ns, side, frame

PATH_MTU_BYTES = 256
MESSAGE_BYTES = 1 << 14
LOSS = 1e-3
_ADDRESSES = (0x0A000001, 0x0A000002)
_BEGIN_NS = 1_700_000_000 * 10**9
_MEMORY_BYTES = 1 << 20
_ROUND = _MEMORY_BYTES // MESSAGE_BYTES  # messages, each with memory of its own
_DELAY_NS, _PACKET_TIME_NS = 5_000, 300
_WITHIN_NS = 10 * 10**9  # a round is over in far less
_QKEY = 0x7A1C
_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ


def write(path: Path, packets: int, talk: str, *, seed: int = 1) -> int:
    """Write a capture of about so many packets, not fewer; returns how many. Talks: TALKS."""
    written = 0
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 1))
        for sent in TALKS[talk](seed):
            file.writelines(_record(at_ns, frame) for at_ns, _, frame in sent)
            written += len(sent)
            if written >= packets:
                break
    return written


def _record(at_ns: int, frame: bytes) -> bytes:
    seconds, ns = divmod(_BEGIN_NS + at_ns, 10**9)
    return struct.pack("<IIII", seconds, ns, len(frame), len(frame)) + frame


def _pair(seed: int) -> Any:
    """Two RNICs on a cable that loses packets, all of which are written down before."""
    configs = []
    for address in _ADDRESSES:
        config = _native.MessageConfig()
        config.address, config.path_mtu = address, PATH_MTU_BYTES
        for name, value in registry.find("csa_ud").engine().items():
            setattr(config, name, value)
        configs.append(config)
    pair = _native.Pair(*configs, seed)
    for which in range(2):
        cable = pair.cable(which)
        cable.delay_ns, cable.packet_time_ns = _DELAY_NS, _PACKET_TIME_NS
        cable.loss = int(LOSS * 2**64)
    pair.keep_sent()
    return pair


class _ConnectedSide:
    """An RNIC with a queue pair and memory that the other one may use."""

    def __init__(self, endpoint: Any, seed: int) -> None:
        self.context = Context(endpoint)
        pd = PD(self.context)
        self.cq = CQ(self.context, 4 * _ROUND)
        self._bytes = np.random.default_rng(seed).integers(0, 256, _MEMORY_BYTES, np.uint8)
        self.mr = MR(pd, self._bytes, _ACCESS)
        cap = QPCap(max_send_wr=_ROUND, max_recv_wr=_ROUND)
        self.qp = QP(pd, QPInitAttr(IBV_QPT_RC, None, self.cq, self.cq, None, cap))

    def connect(self, other: _ConnectedSide) -> None:
        """To RTS, with what one would choose."""
        route = AHAttr(is_global=1, gr=GlobalRoute(dgid=other.context.query_gid(1, 0)))
        attr = QPAttr(path_mtu=IBV_MTU_256, qp_access_flags=_ACCESS, ah_attr=route,
                      dest_qp_num=other.qp.qp_num, max_rd_atomic=4, max_dest_rd_atomic=4,
                      timeout=8, retry_cnt=7, rnr_retry=7, min_rnr_timer=1)  # fmt: skip
        self.qp.to_rts(attr)

    def post(self, number: int, opcode: int, other: _ConnectedSide) -> None:
        """One of a round's messages."""
        at = number * MESSAGE_BYTES
        if opcode == IBV_WR_SEND:
            other.qp.post_recv(RecvWR(number, 1, [other.piece(at)]))
        pieces = [self.piece(at)]
        request = SendWR(number, opcode, 1, sg=pieces, send_flags=IBV_SEND_SIGNALED)
        if opcode != IBV_WR_SEND:
            request.set_wr_rdma(other.mr.rkey, other.mr.buf + at)
        self.qp.post_send(request)

    def piece(self, at: int) -> SGE:
        """Memory of one message."""
        return SGE(self.mr.buf + at, MESSAGE_BYTES, self.mr.lkey)


def _rc(seed: int) -> Iterator[Sent]:
    pair = _pair(seed)
    sides = [_ConnectedSide(pair.side(which), seed) for which in range(2)]
    for side, other in (sides, sides[::-1]):
        side.connect(other)
    opcodes = (IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ)
    while True:
        for number in range(_ROUND):
            sides[0].post(number, opcodes[number % len(opcodes)], sides[1])
        expected = _ROUND
        end_ns = pair.now_ns + _WITHIN_NS
        while expected > 0:
            if not pair.run(min(end_ns, pair.now_ns + 50_000)) and pair.now_ns >= end_ns:
                raise RunError("the two RNICs stand still")
            sides[1].cq.poll(_ROUND)
            expected -= sides[0].cq.poll(_ROUND)[0]
        yield pair.take_sent()


class _StripedSide:
    """An RNIC that moves striped messages."""

    def __init__(self, endpoint: Any, seed: int) -> None:
        pd = PD(Context(endpoint))
        self._bytes = np.random.default_rng(seed).integers(0, 256, _MEMORY_BYTES, np.uint8)
        self.mr = MR(pd, self._bytes, IBV_ACCESS_LOCAL_WRITE)
        self.messages = MessageEndpoint(pd, _QKEY)


def _csa_ud(seed: int) -> Iterator[Sent]:
    pair = _pair(seed)
    sides = [_StripedSide(pair.side(which), seed) for which in range(2)]
    peers = [
        sides[here].messages.connect(_ADDRESSES[1 - here], 0, sides[1 - here].messages.qpns, _QKEY)
        for here in range(2)
    ]
    step = 0
    while True:
        step += 1
        for number in range(_ROUND):
            at = number * MESSAGE_BYTES
            for here, name in ((1, "post_recv"), (0, "post_send")):
                post = getattr(sides[here].messages, name)
                post(0, step, peers[here], MESSAGE_BYTES, sides[here].mr, at, message=number)
        expected = 2 * _ROUND
        end_ns = pair.now_ns + _WITHIN_NS
        while expected > 0:
            if not pair.run(end_ns):
                raise RunError("the two RNICs stand still")
            expected -= sum(side.messages.poll(_ROUND)[0] for side in sides)
        yield pair.take_sent()


TALKS: dict[str, Callable[[int], Iterator[Sent]]] = {"rc": _rc, "csa_ud": _csa_ud}
