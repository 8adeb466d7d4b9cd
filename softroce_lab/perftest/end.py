# SPDX-License-Identifier: GPL-2.0-or-later
"""One end of a perf run: memory and queue pairs at a soft RNIC, and what runs in its engine."""

from __future__ import annotations

import dataclasses
import mmap
import os
import secrets
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import numpy as np

from softroce_lab import _native
from softroce_lab.errors import RdmaError, RunError, ibv_wc_status
from softroce_lab.perftest.options import MOST_READS, PerfTest, Service
from softroce_lab.rnic import Context

GRH_BYTES = 40
QKEY = 0x11111111
"""Of UD queue pairs, as perftest has it."""

_TYPES: dict[Service, int] = {"RC": 2, "UC": 3, "UD": 4}  # enum ibv_qp_type
_INIT, _RTR, _RTS = 1, 2, 3  # enum ibv_qp_state
_STATE, _ACCESS, _PKEY, _PORT, _QKEY = 1 << 0, 1 << 3, 1 << 4, 1 << 5, 1 << 6  # ibv_qp_attr_mask
_AV, _MTU, _TIMEOUT, _RETRY, _RNR, _RQ_PSN = 1 << 7, 1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12
_MAX_RD, _MIN_RNR, _SQ_PSN, _MAX_DEST_RD, _DEST = 1 << 13, 1 << 15, 1 << 16, 1 << 17, 1 << 20
_ACCESS_ALL = 1 | 2 | 4 | 8  # local write, remote write, read, atomic
_CONNECT = _STATE | _AV | _MTU | _DEST | _RQ_PSN
_TO_INIT: dict[Service, int] = {
    "RC": _STATE | _PKEY | _PORT | _ACCESS,
    "UC": _STATE | _PKEY | _PORT | _ACCESS,
    "UD": _STATE | _PKEY | _PORT | _QKEY,
}
_TO_RTR: dict[Service, int] = {
    "RC": _CONNECT | _MAX_DEST_RD | _MIN_RNR,
    "UC": _CONNECT,
    "UD": _STATE,
}
_TO_RTS: dict[Service, int] = {
    "RC": _STATE | _SQ_PSN | _TIMEOUT | _RETRY | _RNR | _MAX_RD,
    "UC": _STATE | _SQ_PSN,
    "UD": _STATE | _SQ_PSN,
}
_RETRIES, _RNR_FOR_EVER, _MIN_RNR_TIMER = 7, 7, 12  # as perftest
_SPARE_WR = 16  # behind the depth: a ping-pong's answer may overtake the completion before it
_PAGE = 4096
_FAR_S = 0.2  # how long a wait is deaf to an interrupt


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """A queue pair and its memory, as its peer must know them."""

    ip: int  # IPv4 or IPv6, as `ipaddress.ip_address` takes numbers
    qpn: int
    psn: int
    rkey: int
    vaddr: int  # where WRITEs go, and READs and atomics act
    reads: int = MOST_READS


class PerfEnd:
    """Memory and queue pairs for one size of a test."""

    def __init__(
        self, name: str, context: Context, test: PerfTest, size: int, *, slots: int = 1
    ) -> None:
        self.name = name
        self.test = test
        self.size = size
        self._slots = slots
        self._context = context
        self._host = context.endpoint
        self._domain = context.new_pd_number()
        self._area = -(-(slots * size + GRH_BYTES) // _PAGE) * _PAGE
        self._memory = mmap.mmap(-1, 2 * self._area)
        self._base = int(np.frombuffer(self._memory, np.uint8).ctypes.data)
        self._mr = self._host.register_memory(self._base, 2 * self._area, _ACCESS_ALL, self._domain)
        self._cq = self._host.create_cq()
        self._numbers: list[int] = []
        self._psns = [secrets.randbits(24) for _ in range(test.qps)]
        self._run: Any = None
        try:
            for _ in range(test.qps):
                self._create_qp()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop what runs, and give everything back."""
        if not self._host.failure:
            self._host.run(None)
        for number in self._numbers:
            self._host.destroy_qp(number)
        self._host.deregister_memory(self._mr)

    @property
    def addresses(self) -> list[Address]:
        """What peers need, by queue pair."""
        ip = int(self._host.address)
        return [
            Address(ip, number, psn, self._mr, self._base + self._area)
            for number, psn in zip(self._numbers, self._psns, strict=True)
        ]

    def connect(self, peers: list[Address]) -> None:
        """Bring the queue pairs to RTS, each towards its peer."""
        for number, psn, peer in zip(self._numbers, self._psns, peers, strict=True):
            values = {
                "address": self._vector(peer),
                "path_mtu_bytes": self.test.mtu,
                "dest_qp_num": peer.qpn,
                "rq_psn": peer.psn,
                "sq_psn": psn,
                "max_rd_atomic": min(MOST_READS, peer.reads),
                "max_dest_rd_atomic": MOST_READS,
                "min_rnr_timer": _MIN_RNR_TIMER,
                "timeout": self.test.ack_timeout,
                "retry_cnt": _RETRIES,
                "rnr_retry": _RNR_FOR_EVER,
            }
            service = self.test.service
            self._modify(number, _TO_RTR[service], qp_state=_RTR, **values)
            self._modify(number, _TO_RTS[service], qp_state=_RTS, **values)
        self._peers = peers

    def prepare(self, *, posts: bool, begins: bool, expected: int) -> None:
        """Get ready; receives are posted now. `expected`: messages to wait for."""
        test = self.test
        receives = test.verb == "send" and (test.latency or test.bidirectional or not posts)
        config = _native.PerfConfig()
        config.verb = getattr(_native.PerfVerb, test.verb.upper())
        config.posts, config.begins = posts, begins
        # Who only receives a stream looks now and then: looking all the time slows the sender
        # down, as each frame then fetches the ring's head from the other core.
        config.spins = test.spins and posts and len(os.sched_getaffinity(0)) > 1
        config.bytes, config.slots = self.size, self._slots
        config.depth = test.tx_depth
        config.signal_every = test.signal_every(self.size)
        config.iterations = test.iterations or 0
        config.duration_ns = int((test.duration_s or 0) * 1e9)
        config.patience_ns = int(test.patience_s * 1e9)
        config.receives = test.rx_depth if receives else 0
        config.receive_bytes = self.size + (GRH_BYTES if test.service == "UD" else 0)
        config.expected = expected
        config.send_address, config.receive_address = self._base, self._base + self._area
        config.lkey = self._mr
        config.qps = [
            self._aimed(number, peer)
            for number, peer in zip(self._numbers, self._peers, strict=True)
        ]
        make = _native.Perf.ping_pong if test.latency else _native.Perf.stream
        self._run = make(config, self._cq)
        self._run.prepare(self._host)

    def begin(self) -> None:
        """Go."""
        self._host.run(self._run)

    def stop(self) -> None:
        """Wait for nobody else."""
        self._run.stop()

    def wait(self, longest_s: float) -> bool:
        """Whether it is over."""
        return self._waited(self._run.wait, longest_s)

    def wait_posts(self, longest_s: float) -> bool:
        """Whether its own requests have ended."""
        return self._waited(self._run.wait_posts, longest_s)

    def _waited(self, wait: Callable[[int], bool], longest_s: float) -> bool:
        deadline = time.monotonic() + longest_s
        while not wait(int(max(min(deadline - time.monotonic(), _FAR_S), 0) * 1e9)):
            if self._host.failure:
                raise RunError(f"the engine of {self.name} stopped: {self._host.failure}")
            if time.monotonic() > deadline:
                return False
        return True

    def result(self) -> Any:
        """The run's figures. RdmaError, RunError: it failed."""
        result = self._run.result()
        end = _native.PerfEnd
        what = f"{self.test.name}: {self.name}"
        if result.end == end.FAILED:
            status = ibv_wc_status(result.status)
            raise RdmaError(status, f"{what}: a completion with an error",
                            hint="is the peer still there?")  # fmt: skip
        if result.end == end.REFUSED:
            raise RunError(f"{what}: a request was refused: {os.strerror(result.error)}")
        if result.end == end.STALLED:
            raise RunError(f"{what}: nothing moved for {self.test.patience_s:g} s",
                           hint="UC and UD do not send again what is lost")  # fmt: skip
        return result

    def _create_qp(self) -> None:
        test = self.test
        cap = (test.tx_depth + _SPARE_WR, max(test.rx_depth, 1), 1, 1, 0)
        kind = _TYPES[test.service]
        error, number, _ = self._host.create_qp(kind, self._cq, self._cq, 0, cap, self._domain,
                                                False)  # fmt: skip
        if error:
            raise RunError(f"{self.name}: cannot create a queue pair: {os.strerror(error)}")
        self._numbers.append(number)
        self._modify(number, _TO_INIT[test.service], qp_state=_INIT, port_num=1, qkey=QKEY,
                     qp_access_flags=_ACCESS_ALL)  # fmt: skip

    def _modify(self, number: int, mask: int, **values: Any) -> None:
        attributes = _native.QpAttr()
        for name, value in values.items():
            setattr(attributes, name, value)
        if error := self._host.modify_qp(number, attributes, mask):
            raise RunError(
                f"{self.name}: cannot bring a queue pair to state {values['qp_state']}: "
                f"{os.strerror(error)}"
            )

    def _vector(self, peer: Address) -> Any:
        vector = _native.AddressVector()
        vector.destination = peer.ip
        vector.mac = self._context.next_hop_mac
        return vector

    def _aimed(self, number: int, peer: Address) -> Any:
        qp = _native.PerfQp()
        qp.number = number
        qp.remote_address, qp.rkey = peer.vaddr, peer.rkey
        qp.address = self._vector(peer)
        qp.remote_qp, qp.remote_qkey = peer.qpn, QKEY
        return qp
