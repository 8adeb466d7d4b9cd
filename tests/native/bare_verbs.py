# SPDX-License-Identifier: GPL-2.0-or-later
"""An RNIC by its native face alone: frames in, frames out, queue pairs by number."""

from __future__ import annotations

import itertools
import os

import numpy as np

from softroce_lab import _native
from tests.native.connected import (
    ALL_ACCESS,
    INIT,
    LOCAL_WRITE,
    MASK_INIT,
    MASK_RTR,
    MASK_RTS,
    RTR,
    RTS,
)

UD = 4
MASK_DATAGRAMS = {INIT: 1 | 1 << 4 | 1 << 5 | 1 << 6, RTR: 1, RTS: 1 | 1 << 16}
DEPTH = 256  # work requests that a queue holds


def check(error: int) -> None:
    """Raises: OSError for an errno value that is not 0."""
    if error:
        raise OSError(error, os.strerror(error))


class BareRnic:
    """One port, and whatever is made of it; every memory it was given lives as long.

    Raises: OSError with the errno value that a verb returned.
    """

    def __init__(self, address: int, mac: int, *, path_mtu: int = 4096) -> None:
        config = _native.MessageConfig()
        config.address = address
        config.path_mtu = path_mtu
        self.endpoint = _native.FrameEndpoint(config, mac)
        self.cq = self.endpoint.create_cq()
        self._memory: list[np.ndarray] = []
        self._ids = itertools.count()

    def create_qp(self, kind: int) -> int:
        """A queue pair in RESET; its number."""
        cap = (DEPTH, DEPTH, 4, 4, 0)
        error, number, _ = self.endpoint.create_qp(kind, self.cq, self.cq, 0, cap, 0, False)
        check(error)
        return number

    def to_rtr(self, qp, kind, *, address=None, peer_qp=0, psn=0, mtu=1024, qkey=0, rnr_timer=0):
        """By way of INIT, ready to receive; `address` is an AddressVector."""
        attr = _native.QpAttr()
        attr.qp_access_flags, attr.qkey = ALL_ACCESS, qkey
        attr.rq_psn, attr.dest_qp_num, attr.path_mtu_bytes = psn, peer_qp, mtu
        attr.max_dest_rd_atomic, attr.min_rnr_timer = 16, rnr_timer
        if address is not None:
            attr.address = address
        self._go(qp, attr, INIT, MASK_INIT if kind in MASK_RTR else MASK_DATAGRAMS[INIT])
        self._go(qp, attr, RTR, MASK_RTR.get(kind, MASK_DATAGRAMS[RTR]))

    def to_rts(self, qp, kind, *, psn=0):
        """From RTR, ready to send; a retransmission is never due."""
        attr = _native.QpAttr()
        attr.sq_psn, attr.retry_cnt, attr.rnr_retry, attr.max_rd_atomic = psn, 7, 7, 16
        self._go(qp, attr, RTS, MASK_RTS.get(kind, MASK_DATAGRAMS[RTS]))

    def _go(self, qp, attr, state, mask):
        attr.qp_state = state
        check(self.endpoint.modify_qp(qp, attr, mask))

    def register(self, data: bytes | int, rights: int, iova: int | None = None):
        """A region with these bytes, or so many zeros: (its bytes, its key)."""
        size = data if isinstance(data, int) else len(data)
        memory = np.zeros(max(size, 1), np.uint8)
        if isinstance(data, bytes):
            memory[:size] = np.frombuffer(data, np.uint8)
        self._memory.append(memory)
        key = self.endpoint.register_memory(
            memory.ctypes.data, memory.nbytes, int(rights), iova=iova
        )
        return memory, key

    def post_receive(self, qp: int, length: int) -> np.ndarray:
        """Post a receive of so many bytes, which it returns."""
        memory, key = self.register(length, LOCAL_WRITE)
        request = _native.ReceiveRequest()
        request.wr_id = next(self._ids)
        request.targets = [_native.ScatterGather(memory.ctypes.data, length, key)]
        check(self.endpoint.post_receives(qp, [request])[0])
        return memory[:length]

    def post_send(self, qp: int, request, data: bytes = b"") -> np.ndarray:
        """Post a request that sends these bytes, or gets as many, in memory that it returns."""
        memory, key = self.register(data, LOCAL_WRITE)
        request.wr_id = next(self._ids)
        request.sources = [_native.ScatterGather(memory.ctypes.data, len(data), key)]
        check(self.endpoint.post_sends(qp, [request])[0])
        return memory[: len(data)]

    def answers(self, frame: bytes, now_ns: int = 0) -> list[bytes]:
        """What is sent when this frame arrives."""
        self.endpoint.handle_frame(frame, now_ns)
        return self.frames(now_ns)

    def frames(self, now_ns: int = 0) -> list[bytes]:
        """What is to be sent."""
        return list(iter(lambda: self.endpoint.poll_frame(now_ns), None))

    def completions(self) -> list:
        """All that have come."""
        return list(itertools.chain.from_iterable(iter(self.cq.poll_completions, [])))

    def counters(self) -> dict[str, int]:
        return dict(self.endpoint.counters())


def address_vector(destination: int, mac: int, *, traffic_class: int = 0) -> object:
    """Where packets go."""
    vector = _native.AddressVector()
    vector.destination, vector.mac, vector.traffic_class = destination, mac, traffic_class
    return vector
