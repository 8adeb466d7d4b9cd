# SPDX-License-Identifier: GPL-2.0-or-later
"""RoCE frames of a host at an even pace, from a thread, while a test does something else."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Self

from benchmarks.traffic import HEADERS_BYTES, INDEX_OFFSET, open_port
from softroce_lab import _native
from softroce_lab.experiment.observation import Counts
from softroce_lab.fabric.lab import Lab
from tests.fabric.xdp_rig import ROCE_PORT, lab_header, roce
from tests.labs import eventually


@contextlib.contextmanager
def listening(lab: Lab, host: str) -> Iterator[None]:
    """The host has a socket on RoCE's port, so that its kernel refuses nothing by ICMP."""
    with lab.enter(host), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind((lab.plan.node(host).address, ROCE_PORT))
        yield


class Stream:
    """Sends `count` frames; leaving the block waits for the last of them."""

    def __init__(
        self,
        lab: Lab,
        source: str,
        destination: str,
        *,
        count: int,
        pace: float,
        sport: int = 0xC000,
        size: int = 128,
        batch: int | None = None,
    ) -> None:
        """`pace` in frames a second; `size` bytes of payload.

        `batch`: frames after which the stream waits until the wire stage took all it was given.
        """
        self.source = source
        self.sent = 0
        self._listening = listening(lab, destination)
        ends = [lab.plan.node(name) for name in (source, destination)]
        header = lab_header(count=_native.MESSAGE_PACKETS)
        addresses = [str(end.address) for end in ends]
        frame = roce(*addresses, sport=sport, lab=header, size=size)
        self._lab, self._count, self._pace, self._batch = lab, count, pace, batch
        # The thread's alone: its end closes the port, and the next stream can open it.
        job = (open_port(lab, ends[0]), frame, INDEX_OFFSET, HEADERS_BYTES)
        self._thread = threading.Thread(target=self._run, args=(job,))

    def _run(self, job: tuple[object, ...]) -> None:
        while self.sent < self._count:
            frames = min(self._batch or self._count, self._count - self.sent)
            sent, _, _ = _native.paced_traffic(*job, frames, self._pace)
            self.sent += sent
            if sent < frames or (self._batch and not eventually(self._taken)):
                return

    def _taken(self) -> bool:
        """Whether the stage took all that it was given so far."""
        counts = Counts.of(self._lab)
        taken = sum(port.received + port.lost_before for port in counts.wire.ports.values())
        return taken == sum(port.to_wire for port in counts.ports.values())

    @property
    def flows(self) -> bool:
        """Whether frames are still on their way out."""
        return self._thread.is_alive()

    def __enter__(self) -> Self:
        self._listening.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._thread.join()
        self._listening.__exit__(*exception)
