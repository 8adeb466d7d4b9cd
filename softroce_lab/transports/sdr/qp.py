# SPDX-License-Identifier: GPL-2.0-or-later
"""The SDK's queue pair: channels of the service UC for data, and one queue pair of RC for control.

A packet is one UC WRITE with immediate, because a UC message of several packets does not survive
reordering (the paper). Packets go round-robin over the channels. The clear to send goes over RC, in
the order of receives, which is the order in which sends match them.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import socket
from collections.abc import Iterator
from typing import Protocol

from softroce_lab import verbs as pyverbs
from softroce_lab.transports.sdr import wire
from softroce_lab.transports.sdr.context import Context
from softroce_lab.transports.sdr.wire import Clear, SdrError
from softroce_lab.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_MTU_256,
    IBV_MTU_512,
    IBV_MTU_1024,
    IBV_MTU_2048,
    IBV_MTU_4096,
    IBV_QPT_RC,
    IBV_QPT_UC,
    IBV_SEND_SIGNALED,
    IBV_WC_RECV_RDMA_WITH_IMM,
    IBV_WC_SUCCESS,
    IBV_WC_WR_FLUSH_ERR,
    IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_SEND,
)

_MTUS = {
    256: IBV_MTU_256, 512: IBV_MTU_512, 1024: IBV_MTU_1024, 2048: IBV_MTU_2048, 4096: IBV_MTU_4096
}  # fmt: skip
_CONTROLS = 64  # clears on their way to us
_BATCH = 256  # completions taken at once


class Outgoing(Protocol):
    """A send, as its queue pair has it."""

    number: int
    user: int
    memory_key: int

    def begin(self, clear: Clear) -> None:
        """Its receive was posted."""

    def left(self, *, failed: bool) -> None:
        """One of its packets has left."""


class Incoming(Protocol):
    """A receive, as its queue pair has it."""

    def arrived(self, packet: int, fragment: int) -> None:
        """A packet is in its place."""

    def close(self) -> None:
        """End it."""


@dataclasses.dataclass(frozen=True, slots=True)
class QpAttr:
    """What a queue pair is made of; `mtu`, `slots` and `channels` are the same at both ends."""

    mtu: int = 2048
    channels: int = 4
    slots: int = 64  # receives that are posted and not complete
    chunk_bytes: int = 64 << 10  # of a bit that a program sees
    send_depth: int = 512  # packets of a channel that wait in the RNIC
    receive_depth: int = 4096  # packets that may arrive between two calls

    def check(self) -> None:
        """SdrError for what is no queue pair."""
        if self.mtu not in _MTUS:
            raise SdrError(f"no path MTU has {self.mtu} bytes", hint="256, 512, 1024, 2048, 4096")
        bounds = {"channels": 64, "slots": wire.SLOTS, "send_depth": 4096, "receive_depth": 16384}
        for name, most in bounds.items():
            value = getattr(self, name)
            if not 1 <= value <= most:
                raise SdrError(f"{name} is {value}", hint=f"1 to {most}")
        if self.chunk_bytes < 1 or self.chunk_bytes % self.mtu:
            what = f"a chunk of {self.chunk_bytes} bytes is no multiple of the path MTU, {self.mtu}"
            raise SdrError(
                what, hint=f"for example {max(self.chunk_bytes // self.mtu, 1) * self.mtu}"
            )


@dataclasses.dataclass(frozen=True, slots=True)
class QpInfo:
    """What the other end has to know; `dataclasses.asdict` is plain integers."""

    gid: str
    control: int
    channels: tuple[int, ...]
    mtu: int
    slots: int


class Qp:
    """A connected pair of ends: sends in one order, receives in another."""

    def __init__(self, context: Context, attr: QpAttr) -> None:
        attr.check()
        self.context, self.attr = context, attr
        verbs = context.verbs
        depth = attr.receive_depth
        self._data_cq = pyverbs.CQ(verbs, depth + attr.channels * attr.send_depth)
        self._control_cq = pyverbs.CQ(verbs, 2 * _CONTROLS + 2 * attr.slots)
        self._srq = pyverbs.SRQ(context.pd, pyverbs.SrqInitAttr(pyverbs.SrqAttr(depth, 1)))
        cap = pyverbs.QPCap(max_send_wr=attr.send_depth, max_recv_wr=0)
        self._channels = [
            pyverbs.QP(
                context.pd,
                pyverbs.QPInitAttr(
                    IBV_QPT_UC, scq=self._data_cq, rcq=self._data_cq, srq=self._srq, cap=cap
                ),
            )
            for _ in range(attr.channels)
        ]
        control_cap = pyverbs.QPCap(max_send_wr=attr.slots + 1, max_recv_wr=_CONTROLS)
        self._control = pyverbs.QP(
            context.pd,
            pyverbs.QPInitAttr(
                IBV_QPT_RC, scq=self._control_cq, rcq=self._control_cq, cap=control_cap
            ),
        )
        size = wire.CLEAR_BYTES
        access = int(IBV_ACCESS_LOCAL_WRITE)
        self._scratch_at = (_CONTROLS + attr.slots) * size
        self._controls = pyverbs.MR(context.pd, self._scratch_at + 1, access)
        self._in_rnic = dict.fromkeys((each.qp_num for each in self._channels), 0)
        self._turn = itertools.cycle(self._channels)
        self._packets: collections.deque[tuple[Outgoing, pyverbs.SendWR]] = collections.deque()
        self._of_wr: dict[int, Outgoing] = {}
        self._wr_ids = itertools.count(1)
        self._clears: dict[int, Clear] = {}
        self._to_clear: collections.deque[Clear] = collections.deque()
        self._clearing = 0
        self.sends_waiting: dict[int, Outgoing] = {}  # by number, without a clear to send
        self.receives: dict[int, Incoming] = {}  # by slot
        self.next_send = self.next_receive = 0
        self.connected = False

    @property
    def most_bytes(self) -> int:
        """Of a message: M, a slot's length."""
        return wire.MOST_PACKETS * self.attr.mtu

    # ---------------------------------------------------------------- connection

    def info(self) -> QpInfo:
        """For the other end."""
        return QpInfo(
            str(self.context.verbs.query_gid(1, 0)),
            self._control.qp_num,
            tuple(each.qp_num for each in self._channels),
            self.attr.mtu,
            self.attr.slots,
        )

    def connect(self, info: QpInfo) -> None:
        """To the end that this information is of."""
        mine = self.info()
        for name, ours, theirs in (
            ("path MTU", mine.mtu, info.mtu),
            ("slots", mine.slots, info.slots),
            ("channels", len(mine.channels), len(info.channels)),
        ):
            if ours != theirs:
                raise SdrError(f"{name}: {ours} here, {theirs} there", hint="the same at both ends")
        if self.connected:
            raise SdrError("this queue pair is connected", hint="create another one")
        for qp, number in zip(
            [self._control, *self._channels], [info.control, *info.channels], strict=True
        ):
            qp.to_rts(self._attr(info, number))
        for index in range(_CONTROLS):
            self._post_control_receive(index)
        self._refill(self.attr.receive_depth)
        self.connected = True

    def _attr(self, info: QpInfo, number: int) -> pyverbs.QPAttr:
        attr = pyverbs.QPAttr(dest_qp_num=number, path_mtu=_MTUS[self.attr.mtu])
        attr.qp_access_flags = int(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
        attr.ah_attr = pyverbs.AHAttr(
            is_global=1, gr=pyverbs.GlobalRoute(dgid=pyverbs.GID(info.gid), sgid_index=0)
        )
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 12, 7, 7, 1
        return attr

    # ---------------------------------------------------------------- packets out

    def queue(self, send: Outgoing, clear: Clear, packets: Iterator[tuple[int, int, int]]) -> None:
        """Let packets leave: (index, address, bytes) of each."""
        slot = send.number % self.attr.slots
        lkey = send.memory_key
        for index, address, length in packets:
            request = pyverbs.SendWR(
                next(self._wr_ids),
                IBV_WR_RDMA_WRITE_WITH_IMM,
                num_sge=1,
                imm_data=socket.htonl(wire.immediate(slot, index, send.user)),
                sg=[pyverbs.SGE(address, length, lkey)],
                send_flags=IBV_SEND_SIGNALED,
            )
            request.set_wr_rdma(clear.key, index * self.attr.mtu)
            self._packets.append((send, request))
        self._post_packets()

    def _post_packets(self) -> None:
        """As many as the channels have room for, round-robin."""
        full = 0
        while self._packets and full < len(self._channels):
            channel = next(self._turn)
            if self._in_rnic[channel.qp_num] >= self.attr.send_depth:
                full += 1
                continue
            full = 0
            send, request = self._packets.popleft()
            channel.post_send(request)
            self._in_rnic[channel.qp_num] += 1
            self._of_wr[request.wr_id] = send

    # ---------------------------------------------------------------- control

    def _post_control_receive(self, index: int) -> None:
        at = self._controls.buf + index * wire.CLEAR_BYTES
        element = pyverbs.SGE(at, wire.CLEAR_BYTES, self._controls.lkey)
        self._control.post_recv(pyverbs.RecvWR(index, 1, [element]))

    def clear_to_send(self, clear: Clear) -> None:
        """Tell the sender of a receive."""
        self._to_clear.append(clear)
        self._send_clears()

    def _send_clears(self) -> None:
        while self._to_clear and self._clearing < self.attr.slots:
            clear = self._to_clear.popleft()
            place = (_CONTROLS + clear.number % self.attr.slots) * wire.CLEAR_BYTES
            self._controls.write(clear.encode(), wire.CLEAR_BYTES, place)
            element = pyverbs.SGE(self._controls.buf + place, wire.CLEAR_BYTES, self._controls.lkey)
            flags = IBV_SEND_SIGNALED
            self._control.post_send(
                pyverbs.SendWR(0, IBV_WR_SEND, num_sge=1, sg=[element], send_flags=flags)
            )
            self._clearing += 1

    def taken(self, number: int) -> Clear | None:
        """The clear to send of the send with this number; None: it has not come."""
        return self._clears.pop(number, None)

    # ---------------------------------------------------------------- progress

    def progress(self) -> None:
        """Take what has completed, and let more packets leave."""
        if not self.connected:
            raise SdrError("the queue pair is not connected", hint="qp_connect, at both ends")
        self._take_controls()
        while self._take_data():
            pass
        self._send_clears()
        self._post_packets()

    def _take_controls(self) -> None:
        for wc in self._control_cq.poll(2 * _CONTROLS)[1]:
            if wc.status != IBV_WC_SUCCESS:
                raise SdrError(
                    f"the control queue pair ended: {wc.status.name}", hint="the peer is gone"
                )
            if wc.byte_len == 0 or wc.opcode < IBV_WC_RECV_RDMA_WITH_IMM - 1:
                self._clearing -= 1
                continue
            at = wc.wr_id * wire.CLEAR_BYTES
            clear = Clear.decode(self._controls.read(wire.CLEAR_BYTES, at))
            self._post_control_receive(wc.wr_id)
            self._clears[clear.number] = clear
            send = self.sends_waiting.pop(clear.number, None)
            if send is not None:
                send.begin(clear)

    def _take_data(self) -> int:
        count, completions = self._data_cq.poll(_BATCH)
        arrived = 0
        for wc in completions:
            if wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM and wc.status == IBV_WC_SUCCESS:
                arrived += 1
                slot, packet, fragment = wire.parsed(socket.ntohl(wc.imm_data))
                receive = self.receives.get(slot)
                if receive is not None:
                    receive.arrived(packet, fragment)
            elif wc.wr_id:
                self._in_rnic[wc.qp_num] -= 1
                send = self._of_wr.pop(wc.wr_id)
                send.left(failed=wc.status not in (IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR))
        self._refill(arrived)
        return count

    def _refill(self, count: int) -> None:
        """A WRITE with immediate uses up a receive of the verbs, but not its memory."""
        element = pyverbs.SGE(self._controls.buf + self._scratch_at, 1, self._controls.lkey)
        for _ in range(count):
            self._srq.post_recv(pyverbs.RecvWR(0, 1, [element]))

    def close(self) -> None:
        """End everything; nothing touches the memory any more."""
        for receive in list(self.receives.values()):
            receive.close()
        for each in (*self._channels, self._control, self._srq, self._data_cq, self._control_cq):
            each.close()
        self._controls.close()


def qp_create(context: Context, attr: QpAttr | None = None) -> Qp:
    """A queue pair that is not connected. SdrError for attributes that make none."""
    return Qp(context, attr or QpAttr())


def qp_info_get(qp: Qp) -> QpInfo:
    """What the other end needs for `qp_connect`."""
    return qp.info()


def qp_connect(qp: Qp, info: QpInfo) -> None:
    """Connect to the other end, which does the same. SdrError if the two do not fit."""
    qp.connect(info)
