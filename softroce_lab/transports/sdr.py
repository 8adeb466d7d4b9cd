# SPDX-License-Identifier: GPL-2.0-or-later
"""SDR-RDMA's SDK (arXiv 2505.05366) on the verbs: partial messages and their bitmaps.

The names are the paper's, docs/explanation/sdr.md has the rules. Nothing here retransmits: a
program reads the receiver's bitmap and decides. No call blocks; each lets waiting work go on.

A packet is one UC WRITE with immediate, because a UC message of several packets does not survive
reordering (the paper). Packets go round-robin over the channels, which are UC. The clear to send
goes over RC, in the order of receives, which is the order in which sends match them.

The paper states the immediate: 10 bits of message, 18 bits of packet offset, 4 bits of the user's
immediate. It has one root key, in which slot i covers [i*M, i*M + M), and points the slot of an
ended receive at a null key. Verbs have no such indirect keys. This project's definition: each use
of a slot has a zero-based key of its own, which the clear to send tells, and which is gone with
`recv_complete`. A late packet names a key that never comes back, and the RNIC drops it.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import operator
import socket
import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from softroce_lab import verbs as pyverbs
from softroce_lab.errors import LabError
from softroce_lab.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_ACCESS_ZERO_BASED,
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
from softroce_lab.verbs.mr import Buffer

__all__ = [
    "Context",
    "Memory",
    "Qp",
    "QpAttr",
    "QpInfo",
    "Receive",
    "SdrError",
    "Send",
    "context_create",
    "mr_reg",
    "qp_connect",
    "qp_create",
    "qp_info_get",
    "recv_bitmap_get",
    "recv_complete",
    "recv_imm_get",
    "recv_post",
    "send_poll",
    "send_post",
    "send_stream_continue",
    "send_stream_end",
    "send_stream_start",
]

SLOTS = 1 << 10
MOST_PACKETS = 1 << 18
FRAGMENT_BITS = 4
FRAGMENTS = 8  # of the user's 32 bits
_CLEAR = struct.Struct(">IIQ")  # number in the order of receives, key, length
CLEAR_BYTES = _CLEAR.size


class SdrError(LabError):
    """A call of the SDK makes no sense, or comes too late; nothing was done."""


@dataclasses.dataclass(frozen=True, slots=True)
class Clear:
    """A receive was posted: its sender may begin."""

    number: int
    key: int
    length: int

    def encode(self) -> bytes:
        """The body of the message on the control queue pair."""
        return _CLEAR.pack(self.number % (1 << 32), self.key, self.length)

    @classmethod
    def decode(cls, body: bytes) -> Clear:
        """The message in a body."""
        return cls(*_CLEAR.unpack(body))


def immediate(slot: int, packet: int, user: int) -> int:
    """Of a packet: slot, offset, and its fragment of the user's immediate, lowest bits first."""
    fragment = user >> packet % FRAGMENTS * FRAGMENT_BITS & (1 << FRAGMENT_BITS) - 1
    return slot << 22 | packet << 4 | fragment


def parsed(immediate_: int) -> tuple[int, int, int]:
    """(slot, packet, fragment)."""
    return immediate_ >> 22, immediate_ >> 4 & MOST_PACKETS - 1, immediate_ & 15


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """An RNIC as the SDK holds it: the verbs' context, and a protection domain."""

    verbs: pyverbs.Context
    pd: pyverbs.PD


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """Registered memory of the user's, which messages come from and go to."""

    context: Context
    mr: pyverbs.MR

    @property
    def length(self) -> int:
        """Bytes."""
        return self.mr.length

    def check(self, offset: int, length: int) -> None:
        """SdrError unless these bytes are in it."""
        if offset < 0 or length < 0 or offset + length > self.length:
            raise SdrError(
                f"bytes {offset} to {offset + length} of a region of {self.length}",
                hint="register the whole buffer",
            )


def context_create(verbs: pyverbs.Context) -> Context:
    """A context on an open device of the verbs (docs/howto/programs.md)."""
    return Context(verbs, pyverbs.PD(verbs))


def mr_reg(context: Context, buffer: Buffer | int) -> Memory:
    """Register a buffer, which is used in place, or so many zeroed bytes.

    Peers get no access by it: a receive registers its part once more, for as long as it lasts.
    """
    return Memory(context, pyverbs.MR(context.pd, buffer, int(IBV_ACCESS_LOCAL_WRITE)))


_MTUS = {
    256: IBV_MTU_256, 512: IBV_MTU_512, 1024: IBV_MTU_1024, 2048: IBV_MTU_2048, 4096: IBV_MTU_4096
}  # fmt: skip
_CONTROLS = 64  # clears on their way to us
_BATCH = 256  # completions taken at once


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
        bounds = {"channels": 64, "slots": SLOTS, "send_depth": 4096, "receive_depth": 16384}
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
        size = CLEAR_BYTES
        access = int(IBV_ACCESS_LOCAL_WRITE)
        self._scratch_at = (_CONTROLS + attr.slots) * size
        self._controls = pyverbs.MR(context.pd, self._scratch_at + 1, access)
        self._in_rnic = dict.fromkeys((each.qp_num for each in self._channels), 0)
        self._turn = itertools.cycle(self._channels)
        self._packets: collections.deque[tuple[Send, pyverbs.SendWR]] = collections.deque()
        self._of_wr: dict[int, Send] = {}
        self._wr_ids = itertools.count(1)
        self._clears: dict[int, Clear] = {}
        self._to_clear: collections.deque[Clear] = collections.deque()
        self._clearing = 0
        self.sends_waiting: dict[int, Send] = {}  # by number, without a clear to send
        self.receives: dict[int, Receive] = {}  # by slot
        self.next_send = self.next_receive = 0
        self.connected = False

    @property
    def most_bytes(self) -> int:
        """Of a message: M, a slot's length."""
        return MOST_PACKETS * self.attr.mtu

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

    def queue(self, send: Send, clear: Clear, packets: Iterator[tuple[int, int, int]]) -> None:
        """Let packets leave: (index, address, bytes) of each."""
        slot = send.number % self.attr.slots
        lkey = send.memory_key
        for index, address, length in packets:
            request = pyverbs.SendWR(
                next(self._wr_ids),
                IBV_WR_RDMA_WRITE_WITH_IMM,
                num_sge=1,
                imm_data=socket.htonl(immediate(slot, index, send.user)),
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
        at = self._controls.buf + index * CLEAR_BYTES
        element = pyverbs.SGE(at, CLEAR_BYTES, self._controls.lkey)
        self._control.post_recv(pyverbs.RecvWR(index, 1, [element]))

    def clear_to_send(self, clear: Clear) -> None:
        """Tell the sender of a receive."""
        self._to_clear.append(clear)
        self._send_clears()

    def _send_clears(self) -> None:
        while self._to_clear and self._clearing < self.attr.slots:
            clear = self._to_clear.popleft()
            place = (_CONTROLS + clear.number % self.attr.slots) * CLEAR_BYTES
            self._controls.write(clear.encode(), CLEAR_BYTES, place)
            element = pyverbs.SGE(self._controls.buf + place, CLEAR_BYTES, self._controls.lkey)
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
            at = wc.wr_id * CLEAR_BYTES
            clear = Clear.decode(self._controls.read(CLEAR_BYTES, at))
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
                slot, packet, fragment = parsed(socket.ntohl(wc.imm_data))
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


class Send:
    """A message on its way; the n-th send of a queue pair fills the n-th receive of the other."""

    def __init__(self, qp: Qp, length: int, user: int) -> None:
        packets = -(-length // qp.attr.mtu)
        if not 0 < length <= qp.most_bytes:
            raise SdrError(
                f"a message of {length} bytes", hint=f"1 to {qp.most_bytes}, the length of a slot"
            )
        bits = min(packets, FRAGMENTS) * FRAGMENT_BITS
        if not 0 <= user < 1 << bits:
            raise SdrError(
                f"an immediate of {user}", hint=f"{packets} packets carry {bits} bits of it"
            )
        self.qp, self.length, self.user = qp, length, user
        self.number = qp.next_send
        qp.next_send += 1
        self.memory_key = 0
        self.ended = False
        self._pending: list[tuple[Memory, int, int, int]] = []
        self._clear: Clear | None = None
        self._in_flight = 0
        self._failure: str | None = None
        clear = qp.taken(self.number)
        if clear is None:
            qp.sends_waiting[self.number] = self
        else:
            self.begin(clear)

    def begin(self, clear: Clear) -> None:
        """Its receive was posted."""
        self._clear = clear
        if clear.length < self.length:
            self._failure = f"a message of {self.length} bytes for a receive of {clear.length}"
            self._pending.clear()
        for part in self._pending:
            self._queue(clear, *part)
        self._pending.clear()

    def add(self, memory: Memory, offset: int, length: int, remote_offset: int) -> None:
        """Send these bytes of the memory, to this offset of the message."""
        mtu = self.qp.attr.mtu
        offset, length, remote_offset = map(operator.index, (offset, length, remote_offset))
        if self.ended:
            raise SdrError("the stream has ended", hint="send_stream_start begins another message")
        memory.check(offset, length)
        if remote_offset % mtu or not 0 < length <= self.length - remote_offset:
            what = f"{length} bytes at offset {remote_offset} of a message of {self.length}"
            raise SdrError(what, hint=f"an offset is a multiple of the path MTU, {mtu}")
        if length % mtu and remote_offset + length != self.length:
            raise SdrError(
                f"{length} bytes in the middle of a message are no whole packets",
                hint=f"multiples of {mtu}",
            )
        self.qp.progress()
        if self._failure is not None:
            return
        if self._clear is None:
            self._pending.append((memory, offset, length, remote_offset))
        else:
            self._queue(self._clear, memory, offset, length, remote_offset)

    def _queue(
        self, clear: Clear, memory: Memory, offset: int, length: int, remote_offset: int
    ) -> None:
        mtu = self.qp.attr.mtu
        self.memory_key = memory.mr.lkey
        self._in_flight += -(-length // mtu)

        def packets() -> Iterator[tuple[int, int, int]]:
            for at in range(0, length, mtu):
                index = (remote_offset + at) // mtu
                yield index, memory.mr.buf + offset + at, min(mtu, length - at)

        self.qp.queue(self, clear, packets())

    def left(self, *, failed: bool) -> None:
        """One of its packets has left the RNIC."""
        self._in_flight -= 1
        if failed:
            self._failure = "the RNIC refused a packet: was the memory deregistered?"

    def poll(self) -> bool:
        """Whether all has left; the memory is free then. SdrError if it never will."""
        self.qp.progress()
        if self._failure is not None:
            raise SdrError(self._failure, hint="post the receive that the send is for")
        return self.ended and self._clear is not None and self._in_flight == 0


def send_stream_start(qp: Qp, length: int, immediate: int = 0) -> Send:
    """Begin a message of so many bytes, with the user's immediate; nothing is sent yet."""
    return Send(qp, length, immediate)


def send_stream_continue(
    send: Send, memory: Memory, offset: int, length: int, remote_offset: int
) -> None:
    """Send bytes of the memory to `remote_offset` of the message, for the first time or again.

    They leave when the receiver is clear to send; until then they wait.
    """
    send.add(memory, offset, length, remote_offset)


def send_stream_end(send: Send) -> None:
    """No more of this message: `send_poll` is true when what was added has left."""
    send.ended = True


def send_post(qp: Qp, memory: Memory, offset: int, length: int, immediate: int = 0) -> Send:
    """Send a whole message once."""
    memory.check(offset, length)
    send = send_stream_start(qp, length, immediate)
    send_stream_continue(send, memory, offset, length, 0)
    send_stream_end(send)
    return send


def send_poll(send: Send) -> bool:
    """Whether all of an ended send has left. It states nothing of its arrival."""
    return send.poll()


_ACCESS = int(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED)

Bitmap = npt.NDArray[np.bool_]


class Receive:
    """A posted receive; the backend has a bit a packet, the program sees one a chunk."""

    def __init__(self, qp: Qp, memory: Memory, offset: int, length: int) -> None:
        memory.check(offset, length)
        if not 0 < length <= qp.most_bytes:
            raise SdrError(
                f"a receive of {length} bytes", hint=f"1 to {qp.most_bytes}, the length of a slot"
            )
        if not qp.connected:
            raise SdrError("the queue pair is not connected", hint="qp_connect, at both ends")
        slot = qp.next_receive % qp.attr.slots
        if slot in qp.receives:
            what = f"receive {qp.next_receive} of {qp.attr.slots} slots"
            raise SdrError(f"{what}: an earlier one is not complete", hint="recv_complete")
        self.qp, self.number, self._slot = qp, qp.next_receive, slot
        packets = -(-length // qp.attr.mtu)
        self._in_chunk = qp.attr.chunk_bytes // qp.attr.mtu
        self.packets: Bitmap = np.zeros(packets, np.bool_)
        self.chunks: Bitmap = np.zeros(-(-packets // self._in_chunk), np.bool_)
        self._left = np.full(len(self.chunks), self._in_chunk)
        self._left[-1] = packets - (len(self.chunks) - 1) * self._in_chunk
        self._user = [None] * min(packets, FRAGMENTS)  # type: list[int | None]
        self.open = True
        part = memory.mr.array[offset : offset + length]
        self._mr = pyverbs.MR(memory.context.pd, part, _ACCESS)
        qp.next_receive += 1
        qp.receives[slot] = self
        qp.clear_to_send(Clear(self.number, self._mr.rkey, length))

    def arrived(self, packet: int, fragment: int) -> None:
        """A packet is in its place. One that is there already came again."""
        if packet >= len(self.packets) or self.packets[packet]:
            return
        self.packets[packet] = True
        self._user[packet % len(self._user)] = fragment
        chunk = packet // self._in_chunk
        self._left[chunk] -= 1
        if self._left[chunk] == 0:
            self.chunks[chunk] = True

    def bitmap(self) -> Bitmap:
        """A bit for each chunk, set when all of it is there: a view that follows what arrives."""
        self.check_open()
        self.qp.progress()
        view = self.chunks.view()
        view.flags.writeable = False
        return view

    def immediate(self) -> int | None:
        """The user's immediate; None before all of its fragments are there."""
        self.check_open()
        self.qp.progress()
        if None in self._user:
            return None
        parts = (each << 4 * at for at, each in enumerate(self._user) if each)
        return sum(parts)

    def check_open(self) -> None:
        """SdrError if it was completed."""
        if not self.open:
            raise SdrError(f"receive {self.number} is complete", hint="its bitmap is gone")

    def close(self) -> None:
        """The memory is the user's alone from now on."""
        if not self.open:
            return
        self.open = False
        self._mr.close()  # between two turns of the RNIC: what comes later names no memory
        self.qp.progress()  # what came before is of this receive
        del self.qp.receives[self._slot]


def recv_post(qp: Qp, memory: Memory, offset: int, length: int) -> Receive:
    """Post a receive into the memory; the sender of the same number gets its clear to send.

    SdrError while the slot's receive before it is not complete.
    """
    return Receive(qp, memory, offset, length)


def recv_bitmap_get(receive: Receive) -> Bitmap:
    """Which chunks are there: a numpy view without a copy, read-only; shape (chunks,).

    It follows what arrives with each further call of the SDK.
    """
    return receive.bitmap()


def recv_imm_get(receive: Receive) -> int | None:
    """The user's immediate; None: not all of it is there."""
    return receive.immediate()


def recv_complete(receive: Receive) -> None:
    """End a receive, whether all of it is there or not. No packet writes its memory afterwards."""
    receive.check_open()
    receive.close()
