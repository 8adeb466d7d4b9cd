# SPDX-License-Identifier: GPL-2.0-or-later
"""Receives: partial messages, whose bitmap tells what is there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from softroce_lab import verbs as pyverbs
from softroce_lab.transports.sdr import wire
from softroce_lab.transports.sdr.context import Memory
from softroce_lab.transports.sdr.qp import Qp
from softroce_lab.transports.sdr.wire import Clear, SdrError
from softroce_lab.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_ACCESS_ZERO_BASED,
)

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
        self._user = [None] * min(packets, wire.FRAGMENTS)  # type: list[int | None]
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
