# SPDX-License-Identifier: GPL-2.0-or-later
"""A file from one host of a lab to another over one transport: the run, and what it measured."""

from __future__ import annotations

import dataclasses
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from softroce_lab.errors import RunError
from softroce_lab.experiment.hosts import processes as hosts
from softroce_lab.experiment.hosts.processes import HostHandle
from softroce_lab.experiment.hosts.settings import TransferSettings
from softroce_lab.experiment.observation import Observation, Observed
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.experiment.workload_run import RESENT, SPURIOUS, data_packets, total
from softroce_lab.fabric.lab import Lab
from softroce_lab.plan.plan import Node
from softroce_lab.recovery import registry
from softroce_lab.telemetry.drops import EFFECT_DROP, Drops

Progress = Callable[[int], None]

MESSAGE_BYTES = 1 << 20
DEPTH = 2  # what a window of 1024 packets holds; more would wait, and measure its waiting
STALL_S = 15.0  # without a byte of progress, a run is over: every wait has a bound
SETTLE_S = 0.05  # for what both hosts still have to say to each other when they are done


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """What is sent: `size_bytes` of a file, from one host to another."""

    source: str
    destination: str
    path: Path
    size_bytes: int
    message_bytes: int = MESSAGE_BYTES
    depth: int = DEPTH
    hash: bool = True
    save: Path | None = None
    ip_version: int = 4
    cpus: tuple[int, int] = (-1, -1)  # of the sender's and the receiver's engine; -1: any
    event_log: Path | None = None  # an absolute path; both append to it


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TransferRun(Observed):
    """One transport's run, complete."""

    transport: str
    sent: dict[str, Any]  # what the sending host said
    received: dict[str, Any]
    sent_messages: np.ndarray[Any, np.dtype[np.void]]  # of dtype journal.COMPLETION
    received_messages: np.ndarray[Any, np.dtype[np.void]]
    events: dict[str, np.ndarray[Any, np.dtype[np.void]]]  # by node, of dtype journal.EVENT
    stats: dict[str, dict[str, Any]]  # by node: all counters in the end, docs/telemetry.md

    @property
    def drops(self) -> Drops:
        """The packets that rules took; what a full queue took is in `links`."""
        return self.injections[self.injections["effect"] & EFFECT_DROP != 0]

    @property
    def verified(self) -> bool:
        """Whether both ends saw the same bytes."""
        same = self.sent["sha256"] == self.received["sha256"]
        return bool(same and self.sent["bytes"] == self.received["bytes"])

    @property
    def injected_drops(self) -> int:
        """Frames that rules, full queues, and links that were down took."""
        if not self.recorded:  # then other traffic's are among them
            return sum(link.injected_drops for link in self.links)
        queued = sum(link.wire.dropped_by_queue for link in self.links if link.wire)
        return len(self.drops) + queued + self.stage.no_route

    @property
    def emulator_drops(self) -> int:
        """Frames that the machine lost, not a rule."""
        on_links = sum(link.emulator_drops for link in self.links)
        at_sockets = sum(port.emulator_drops for port in self.ports)
        return on_links + at_sockets + self.stage.lost

    def completion_times_ns(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Per message, from the post of the send to its completion at the sender."""
        times: np.ndarray[Any, np.dtype[np.int64]] = (
            self.sent_messages["completed_ns"] - self.sent_messages["posted_ns"]
        )
        return times

    def summary(self) -> dict[str, Any]:
        """The figures of the table, and of `lab demo --json`."""
        times = self.completion_times_ns()
        begun, over = self.sent_messages["posted_ns"], self.sent_messages["completed_ns"]
        span_ns = max(int(over.max() - begun.min()), 1)
        counters = self.sent["counters"]
        return {
            "transport": self.transport,
            "verified": self.verified,
            "goodput_bps": int(self.sent["bytes"] * 8e9 / span_ns),
            "fct_p50_ns": int(np.percentile(times, 50, method="higher")),
            "fct_p99_ns": int(np.percentile(times, 99, method="higher")),
            "packets_sent": data_packets(counters),
            "injected_drops": self.injected_drops,
            "emulator_drops": self.emulator_drops,
            "resent": total(counters, RESENT),
            "spurious_resent": total(self.received["counters"], SPURIOUS),
            "fidelity": self.fidelity.document(),
        }

    def first_attempts_lost(self) -> set[tuple[int, int]]:
        """(message, packet index) of the data packets lost when they were sent first."""
        first = self.drops[(self.drops["kind"] == 0) & (self.drops["attempt"] == 0)]
        return set(zip(first["message"].tolist(), first["index"].tolist(), strict=True))


def run(lab: Lab, transport: str, job: Job, *, qkey: int, progress: Progress) -> TransferRun:
    """Send the file over `transport`, and wait until both ends are done.

    EnvironmentLackError without AF_XDP. RunError when a host fails, or when nothing moves for
    `STALL_S`. Hosts are gone afterwards.
    """
    observation = Observation(lab)
    nodes = [lab.plan.node(job.source), lab.plan.node(job.destination)]

    def host_at(node: Node, cpu: int) -> HostHandle:
        return HostHandle(
            lab, node, Transport.named(transport), observation.epoch_ns, qkey, cpu,
            ip_version=job.ip_version, event_log=job.event_log,
        )  # fmt: skip

    said, stats, saved = {}, {}, {}
    with host_at(nodes[0], job.cpus[0]) as source, host_at(nodes[1], job.cpus[1]) as destination:
        hosts.start([source, destination])
        prepare(source, destination, job)
        lab.faults.restart(time.monotonic_ns())
        hosts.begin([source, destination])
        _until_done(source, destination, progress)
        time.sleep(SETTLE_S)
        for host in (source, destination):
            name = host.node.name
            said[name], saved[name] = host.finish()
            stats[name] = said[name].pop("stats")
    observed = observation.end(said, striped=registry.find(transport).shows_messages())
    return TransferRun(
        transport=transport,
        sent=said[job.source],
        received=said[job.destination],
        sent_messages=saved[job.source]["completions"],
        received_messages=saved[job.destination]["completions"],
        events={name: journal["events"] for name, journal in saved.items()},
        stats=stats,
        **{field.name: getattr(observed, field.name) for field in dataclasses.fields(observed)},
    )


def prepare(source: HostHandle, destination: HostHandle, job: Job) -> None:
    """Let two hosts whose ports are open be ready for a job."""
    sides = {0: ("send", 1, job.path), 1: ("receive", 0, job.save)}
    tasks = {
        number: (
            "transfer",
            TransferSettings(
                role=role,
                peer=peer,
                total_bytes=job.size_bytes,
                message_bytes=job.message_bytes,
                depth=job.depth,
                path=None if path is None else str(path),
                hash=job.hash,
            ),
        )
        for number, (role, peer, path) in sides.items()
    }
    hosts.prepare({0: source, 1: destination}, tasks)


def _until_done(source: HostHandle, destination: HostHandle, progress: Progress) -> None:
    waiting = {source, destination}
    moved = time.monotonic()
    received = -1
    while waiting:
        ready, _, _ = select.select(list(waiting), [], [], 1.0)
        for host in ready:
            for document in host.documents():
                if "done" in document:
                    waiting.discard(host)
                elif host is destination and document.get("progress", -1) > received:
                    received = document["progress"]
                    moved = time.monotonic()
                    progress(received)
        if time.monotonic() - moved > STALL_S:
            raise RunError(f"nothing moved for {STALL_S:g} s, {max(received, 0)} bytes arrived")
