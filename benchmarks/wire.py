# SPDX-License-Identifier: GPL-2.0-or-later
"""The wire stage on a link with 1 ms of delay: how exact it is, how fast, and what a frame costs.

A program at the receiver's port notes when each frame arrives. What a frame takes without the
delay is subtracted by its median.
"""

from __future__ import annotations

import contextlib
import mmap
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from benchmarks.traffic import (
    HEADERS_BYTES,
    INDEX_OFFSET,
    cpu_s,
    data_frame,
    first_switch,
    lab_of,
    send_paced,
    set_faults,
)
from softroce_lab.errors import RunError
from softroce_lab.fabric.bpf import libbpf
from softroce_lab.fabric.bpf.compiler import Module
from softroce_lab.fabric.bpf.xdp import attach_pinned
from softroce_lab.fabric.lab import Lab
from softroce_lab.plan.effects import Delay, Fault
from softroce_lab.structs import Struct

PAYLOAD_BYTES = 1024
DELAY_NS = 1_000_000
PACE = 50_000.0  # frames a second
SLOWEST, STEP, FASTEST = 100_000.0, 1.1, 1_500_000.0  # frames a second that are tried
_NUMBERS = 1 << 20
_STAMP = np.dtype(Struct("lab_stamp").dtype)
_SETTLE_S = 0.2  # for the last frames
_TRIES = 3  # at each pace: another program may have got in the way


class _Stamps:
    """Sends frames from the first host to the last, and notes when each arrived."""

    def __init__(self, lab: Lab) -> None:
        self._lab, self._frame = lab, data_frame(lab, PAYLOAD_BYTES)
        table = libbpf.Map.pinned(lab.bpffs / "stamps")
        try:
            self._memory = mmap.mmap(table.fd, table.max_entries * _STAMP.itemsize)
        finally:
            table.close()

    def send(self, count: int, pace: float) -> npt.NDArray[np.void]:
        """The records of so many frames; one with 0 `copies` never arrived. RunError."""
        self._memory[:] = bytes(len(self._memory))
        if (sent := send_paced(self._lab, self._frame, count, pace)) != count:
            raise RunError(f"only {sent} of {count} frames could be sent")
        time.sleep(_SETTLE_S)
        return np.frombuffer(self._memory, _STAMP, count).copy()

    def latencies_ns(self, count: int) -> npt.NDArray[np.float64]:
        """Of the frames that arrived. RunError if none did."""
        stamps = self.send(count, PACE)
        arrived = stamps[stamps["copies"] > 0]
        if not len(arrived):
            raise RunError("no frame arrived")
        taken: npt.NDArray[np.float64] = (arrived["arrived_ns"] - arrived["sent_ns"]).astype(float)
        return taken

    def lossless_per_s(self, seconds: float) -> float:
        """The fastest pace at which no frame is lost; 0 if some are lost at the slowest."""
        best, pace = 0.0, SLOWEST
        while pace <= FASTEST:
            for _ in range(_TRIES):
                stamps = self.send(min(int(pace * seconds), _NUMBERS), pace)
                if (stamps["copies"] == 1).all():
                    break
            else:
                break
            reached = float((len(stamps) - 1) * 1e9 / np.ptp(stamps["sent_ns"]))
            best = max(best, reached)
            if reached < pace / 1.02:  # the sender cannot send faster
                break
            pace *= STEP
        return best


@contextlib.contextmanager
def _stamping(lab: Lab) -> Iterator[_Stamps]:
    """The last host's port has the program that notes arrivals, and then the lab's own again."""
    node = lab.plan.hosts[-1]
    parameters = {"LAB_STAMPS": _NUMBERS, "LAB_INDEX_OFFSET": INDEX_OFFSET,
                  "LAB_STAMP_OFFSET": HEADERS_BYTES}  # fmt: skip
    with Module("stamps.c", ("stamp_port",), parameters) as module:
        module.pin(lab.bpffs, ("stamps",))
    with lab.enter(node.name):
        ifindexes = [port.ifindex for port in node.ports]
        attach_pinned(lab.bpffs / "stamp_port", ifindexes, lab.mode)
    try:
        yield _Stamps(lab)
    finally:
        lab.xdp.attach_programs([node], lab.enter, lab.mode)


def measure(short: bool) -> dict[str, float]:
    """Errors of the delay, ns; CPU time of the stage a frame, ns; frames a second without loss."""
    count = 5_000 if short else 250_000
    with lab_of("two-hosts") as lab, _stamping(lab) as stamps:
        undelayed_ns = float(np.median(stamps.latencies_ns(count // 5)))
        directed, _ = first_switch(lab.plan)
        delay = Delay(DELAY_NS, 0, "uniform", preserve=True)
        set_faults(lab, [Fault("delay", 0, directed, "index", 1, delay)])
        before_s = cpu_s(lab, "wire")
        latencies = stamps.latencies_ns(count)
        spent_s = cpu_s(lab, "wire") - before_s
        errors = np.abs(latencies - undelayed_ns - DELAY_NS)
        p50, p99 = np.percentile(errors, (50, 99))
        fastest = stamps.lossless_per_s(0.1 if short else 0.5)
    return {
        "delay_error_p50_ns": float(p50),
        "delay_error_p99_ns": float(p99),
        "frames_lost": count - len(latencies),
        "cpu_per_frame_ns": spent_s * 1e9 / count,
        "lossless_frames_per_s": fastest,
    }
