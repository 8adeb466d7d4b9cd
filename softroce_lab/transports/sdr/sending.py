# SPDX-License-Identifier: GPL-2.0-or-later
"""Sends: streams of chunks at any offset, and whole messages."""

from __future__ import annotations

import operator
from collections.abc import Iterator

from softroce_lab.transports.sdr import wire
from softroce_lab.transports.sdr.context import Memory
from softroce_lab.transports.sdr.qp import Qp
from softroce_lab.transports.sdr.wire import Clear, SdrError


class Send:
    """A message on its way; the n-th send of a queue pair fills the n-th receive of the other."""

    def __init__(self, qp: Qp, length: int, user: int) -> None:
        packets = -(-length // qp.attr.mtu)
        if not 0 < length <= qp.most_bytes:
            raise SdrError(
                f"a message of {length} bytes", hint=f"1 to {qp.most_bytes}, the length of a slot"
            )
        bits = min(packets, wire.FRAGMENTS) * wire.FRAGMENT_BITS
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
