# SPDX-License-Identifier: GPL-2.0-or-later
"""What two soft RNICs do between two hosts of a lab: both engines run in this process.

Streams of WRITEs and SENDs, and round trips of SENDs. The loops are native
(native/endpoint/perf.hpp) and no Python runs while they do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import mmap
import os
import secrets
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import numpy as np

from softroce_lab import _native
from softroce_lab.errors import RdmaError, RunError, ibv_wc_status
from softroce_lab.experiment.hosts import rnics
from softroce_lab.fabric.lab import Lab
from softroce_lab.rnic import Context

_RC = 2  # enum ibv_qp_type
_INIT, _RTR, _RTS = 1, 2, 3  # enum ibv_qp_state
_TO_INIT = 1 << 0 | 1 << 3 | 1 << 4 | 1 << 5  # enum ibv_qp_attr_mask: what each step of RC asks for
_TO_RTR = 1 << 0 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 15 | 1 << 17 | 1 << 20
_TO_RTS = 1 << 0 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13 | 1 << 16
_ACCESS = 1 | 2  # local write, remote write
_DEPTH, _RX_DEPTH, _SPARE_WR = 128, 512, 16
_MODERATION, _MODERATED_BYTES = 100, 8192  # requests to a completion, as perftest
_PATIENCE_S = 10.0
_PAGE = 4096
_LOOK_S, _LAST_S = 0.5, 0.2
_FAR_S = 0.2  # how long a wait is deaf to an interrupt


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """`write_bw` and `send_bw` last `duration_s`, `send_lat` so many iterations."""

    test: str
    bytes: int
    iterations: int = 0
    duration_s: float = 0.0
    ack_timeout: int = 14


@dataclasses.dataclass(frozen=True, slots=True)
class PerfTest:
    """The same over a path of this MTU."""

    options: Options
    mtu: int

    @classmethod
    def of(cls, options: Options, mtu: int) -> PerfTest:
        """Of these options."""
        return cls(options, mtu)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of a message."""
        return (self.options.bytes,)

    @property
    def is_latency(self) -> bool:
        """Whether each message is sent back before the next."""
        return self.options.test == "send_lat"

    @property
    def is_write(self) -> bool:
        """Whether messages are WRITEs."""
        return self.options.test == "write_bw"

    @property
    def depth(self) -> int:
        """Requests under way."""
        return 1 if self.is_latency else _DEPTH

    @property
    def signal_every(self) -> int:
        """Requests to a completion."""
        wanted = 1 if self.options.bytes > _MODERATED_BYTES else _MODERATION
        return min(wanted, self.depth)


@dataclasses.dataclass(frozen=True, slots=True)
class Bandwidth:
    """Of a stream."""

    average: float  # bytes/s
    messages_per_second: float


@dataclasses.dataclass(frozen=True, slots=True)
class Latency:
    """Of round trips: half of one, microseconds."""

    median: float


@dataclasses.dataclass(frozen=True, slots=True)
class Ends:
    """The RNICs at two hosts."""

    client: Context
    server: Context
    names: tuple[str, str]


@contextlib.contextmanager
def ends(lab: Lab, client: str, server: str, cpus: tuple[int, int] = (-1, -1)) -> Iterator[Ends]:
    """Open the RNICs of two hosts; `cpus` are of their engines, -1: any."""
    opened = functools.partial(rnics.opened, lab)
    with opened(client, cpu=cpus[0]) as near, opened(server, cpu=cpus[1]) as far:
        yield Ends(near, far, (client, server))


def measure(between: Ends, test: PerfTest, size: int, *, slots: int = 1) -> Bandwidth | Latency:
    """Run a test; `slots` messages have memory of their own. RdmaError, RunError."""
    with (
        _End(between.names[0], between.client, test, slots=slots) as client,
        _End(between.names[1], between.server, test, slots=slots) as server,
    ):
        client.connect(server)
        server.connect(client)
        client.prepare(server, posts=True, begins=True)
        server.prepare(client, posts=test.is_latency, begins=False)
        server.begin()
        client.begin()
        result = _result(client, server)
    if test.is_latency:
        return Latency(float(np.median(np.diff(result.posted_ns))) / 2e3)
    rate = result.completed * 1e9 / max(result.ended_ns - result.began_ns, 1)
    return Bandwidth(rate * size, rate)


def _result(client: _End, server: _End) -> Any:
    """The client's, when both have ended. Each gives up by itself when nothing moves."""
    while not client.wait(_LOOK_S):
        if server.wait(0):
            server.result()
    if not server.wait(_LAST_S):
        server.stop()
        server.wait(_PATIENCE_S + 1)
    server.result()
    return client.result()


class _End:
    """Memory and an RC queue pair at one RNIC."""

    def __init__(self, name: str, context: Context, test: PerfTest, *, slots: int) -> None:
        self.name = name
        self.test = test
        self._slots = slots
        self._context = context
        self._host = context.endpoint
        domain = context.new_pd_number()
        self._area = -(-slots * test.options.bytes // _PAGE) * _PAGE
        self._memory = mmap.mmap(-1, 2 * self._area)
        self._base = int(np.frombuffer(self._memory, np.uint8).ctypes.data)
        self.key = self._host.register_memory(self._base, 2 * self._area, _ACCESS, domain)
        self._cq = self._host.create_cq()
        self.psn = secrets.randbits(24)
        self._run: Any = None
        cap = (_DEPTH + _SPARE_WR, _RX_DEPTH, 1, 1, 0)
        error, self.number, _ = self._host.create_qp(_RC, self._cq, self._cq, 0, cap, domain, False)
        if error:
            self._host.deregister_memory(self.key)
            raise RunError(f"{name}: cannot create a queue pair: {os.strerror(error)}")
        self._modify(_TO_INIT, qp_state=_INIT, port_num=1, qp_access_flags=_ACCESS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop what runs, and give everything back."""
        if not self._host.failure:
            self._host.run(None)
        self._host.destroy_qp(self.number)
        self._host.deregister_memory(self.key)

    @property
    def target(self) -> int:
        """Address of the memory that WRITEs and receives fill."""
        return self._base + self._area

    def connect(self, peer: _End) -> None:
        """Bring the queue pair to RTS."""
        vector = _native.AddressVector()
        vector.destination = int(peer._host.address)
        vector.mac = self._context.next_hop_mac
        values = {
            "address": vector,
            "path_mtu_bytes": self.test.mtu,
            "dest_qp_num": peer.number,
            "rq_psn": peer.psn,
            "sq_psn": self.psn,
            "max_rd_atomic": 1,
            "max_dest_rd_atomic": 1,
            "min_rnr_timer": 12,
            "timeout": self.test.options.ack_timeout,
            "retry_cnt": 7,
            "rnr_retry": 7,
        }
        self._modify(_TO_RTR, qp_state=_RTR, **values)
        self._modify(_TO_RTS, qp_state=_RTS, **values)

    def prepare(self, peer: _End, *, posts: bool, begins: bool) -> None:
        """Get ready; receives are posted now."""
        test, options = self.test, self.test.options
        receives = not test.is_write and (test.is_latency or not posts)
        config = _native.PerfConfig()
        config.verb = _native.PerfVerb.WRITE if test.is_write else _native.PerfVerb.SEND
        config.posts, config.begins = posts, begins
        # Who only receives a stream looks now and then: looking all the time slows the sender
        # down, as each frame then fetches the ring's head from the other core.
        config.spins = posts and len(os.sched_getaffinity(0)) > 1
        config.bytes, config.slots = options.bytes, self._slots
        config.depth, config.signal_every = test.depth, test.signal_every
        config.iterations = options.iterations
        config.duration_ns = int(options.duration_s * 1e9)
        config.patience_ns = int(_PATIENCE_S * 1e9)
        config.receives = _RX_DEPTH if receives else 0
        config.receive_bytes = options.bytes
        config.send_address, config.receive_address = self._base, self.target
        config.lkey, config.qp = self.key, self.number
        config.remote_address, config.rkey = peer.target, peer.key
        make = _native.Perf.ping_pong if test.is_latency else _native.Perf.stream
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
        wait: Callable[[int], bool] = self._run.wait
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
        what = f"{self.test.options.test}: {self.name}"
        if result.end == _native.PerfEnd.FAILED:
            status = ibv_wc_status(result.status)
            raise RdmaError(status, f"{what}: a completion with an error")
        if result.end == _native.PerfEnd.REFUSED:
            raise RunError(f"{what}: a request was refused: {os.strerror(result.error)}")
        if result.end == _native.PerfEnd.STALLED:
            raise RunError(f"{what}: nothing moved for {_PATIENCE_S:g} s")
        return result

    def _modify(self, mask: int, **values: Any) -> None:
        attributes = _native.QpAttr()
        for name, value in values.items():
            setattr(attributes, name, value)
        if error := self._host.modify_qp(self.number, attributes, mask):
            raise RunError(
                f"{self.name}: cannot bring a queue pair to state {values['qp_state']}: "
                f"{os.strerror(error)}"
            )
