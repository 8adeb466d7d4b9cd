# SPDX-License-Identifier: GPL-2.0-or-later
"""A file from one host of a lab to another over one transport: the run, and what it measured."""

from __future__ import annotations

import dataclasses
import ipaddress
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from softroce_lab.errors import RunError
from softroce_lab.experiment.accounting import Accounts, Counts
from softroce_lab.experiment.hosts import HostHandle, connect
from softroce_lab.experiment.settings import TransferSettings
from softroce_lab.fabric import lacks, monitor
from softroce_lab.fabric.lab import Lab
from softroce_lab.faults.effects import Fault
from softroce_lab.telemetry.drops import DROP, EFFECT_DROP, KIND_NONE, Drops, read_drops
from softroce_lab.telemetry.fidelity import Fidelity, judge
from softroce_lab.telemetry.links import LinkFigures, PortFigures, StageFigures
from softroce_lab.telemetry.stolen import StolenTime
from softroce_lab.topology.plan import Node

Progress = Callable[[int], None]

MESSAGE_BYTES = 1 << 20
DEPTH = 2  # what a window of 1024 packets holds; more would wait, and measure its waiting
STALL_S = 15.0  # without a byte of progress, a run is over: every wait has a bound
_SETTLE_S = 0.05  # for what both hosts still have to say to each other when they are done
_SYNC_S = 5.0


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


@dataclasses.dataclass(frozen=True, slots=True)
class TransferRun:
    """One transport's run, complete."""

    transport: str
    epoch_ns: int  # CLOCK_MONOTONIC at its beginning
    end_ns: int
    sent: dict[str, Any]  # what the sending host said
    received: dict[str, Any]
    sent_messages: np.ndarray[Any, np.dtype[np.void]]  # of dtype journal.COMPLETION
    received_messages: np.ndarray[Any, np.dtype[np.void]]
    events: dict[str, np.ndarray[Any, np.dtype[np.void]]]  # by node, of dtype journal.EVENT
    recorded: bool  # whether there were ring buffers for what follows
    injections: Drops  # all that faults did to packets
    links: list[LinkFigures]
    ports: list[PortFigures]
    stage: StageFigures
    idle_rules: list[str]  # that did nothing to any packet
    faults: list[Fault]  # set when it began, or when it ended
    fidelity: Fidelity

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
            "packets_sent": counters["tx_data"],
            "injected_drops": self.injected_drops,
            "emulator_drops": self.emulator_drops,
            "resent": counters["tx_resent"],
            "spurious_resent": self.received["counters"]["rx_duplicate"],
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
    lacks.need(lacks.AF_XDP)
    before = Counts.of(lab)
    written = lab.drained(_SYNC_S)
    stolen = StolenTime()
    epoch_ns = time.monotonic_ns()
    nodes = [lab.plan.node(job.source), lab.plan.node(job.destination)]
    ip = job.ip_version
    with (
        HostHandle(lab, nodes[0], transport, epoch_ns, qkey, job.cpus[0], ip_version=ip) as source,
        HostHandle(
            lab, nodes[1], transport, epoch_ns, qkey, job.cpus[1], ip_version=ip
        ) as destination,
    ):
        connect([source, destination])
        lab.faults.restart(time.monotonic_ns())
        begin(destination, "receive", job)
        begin(source, "send", job)
        done = _until_done({source: "sent", destination: "received"}, progress)
        time.sleep(_SETTLE_S)
        saved = {}
        for host, role in ((source, "sent"), (destination, "received")):
            figures, saved[host.node.name] = host.finish()
            done[role] |= figures
    drained = lab.drained(_SYNC_S)
    unwritten = drained.drops_lost - written.drops_lost
    unwritten += drained.captures_lost - written.captures_lost
    end_ns = time.monotonic_ns()
    hosts = {job.source: done["sent"], job.destination: done["received"]}
    plan = lab.present_plan()  # others may have changed faults meanwhile
    met = {fault.rule_id: fault for fault in (*lab.plan.faults, *plan.faults)}
    accounts = Accounts(lab.plan, Counts.of(lab) - before, hosts, met.values())
    links, ports, stage = accounts.links(), accounts.ports(), accounts.stage()
    injections = _recorded(lab, epoch_ns, end_ns)
    injections = injections[_of_run(injections, nodes)]
    return TransferRun(
        transport=transport,
        epoch_ns=epoch_ns,
        end_ns=end_ns,
        sent=done["sent"],
        received=done["received"],
        sent_messages=saved[job.source]["completions"],
        received_messages=saved[job.destination]["completions"],
        events={name: journal["events"] for name, journal in saved.items()},
        recorded=lacks.RING_BUFFERS not in lab.lacks,
        injections=injections,
        links=links,
        ports=ports,
        stage=stage,
        idle_rules=_idle_rules(lab, links),
        faults=list(met.values()),
        fidelity=judge(links, ports, hosts, stage, unwritten=unwritten, stolen=stolen.share()),
    )


def _recorded(lab: Lab, since_ns: int, until_ns: int) -> Drops:
    if lacks.RING_BUFFERS in lab.lacks:
        return np.empty(0, DROP)
    return read_drops(lab.directory / monitor.DROPS, since_ns=since_ns, until_ns=until_ns)


def _idle_rules(lab: Lab, links: list[LinkFigures]) -> list[str]:
    """The plan's rules that hit no packet, and shaped no link that one took."""
    acted = {hit.rule_id for found in lab.xdp.hits().values() for hit in found if hit.hits}
    for fault in lab.plan.faults:
        if fault.shapes and links[fault.directed_link].wire is not None:
            acted.add(fault.rule_id)
    busy = {fault.rule for fault in lab.plan.faults if fault.rule_id in acted}
    return [rule for rule in dict.fromkeys(f.rule for f in lab.plan.faults) if rule not in busy]


def _of_run(drops: Drops, nodes: list[Node]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which drops are of packets between these nodes' RNICs, not of other traffic in the lab."""
    addresses = [int(ipaddress.IPv4Address(node.address or 0)) for node in nodes]
    ours: np.ndarray[Any, np.dtype[np.bool_]] = (
        np.isin(drops["src"], addresses)
        & np.isin(drops["dst"], addresses)
        & (drops["kind"] != KIND_NONE)
    )
    return ours


def begin(host: HostHandle, role: str, job: Job) -> None:
    """Let a connected host begin its side, "send" or "receive"; returns when it has."""
    path = job.path if role == "send" else job.save
    settings = TransferSettings(
        role=role,
        total_bytes=job.size_bytes,
        message_bytes=job.message_bytes,
        depth=job.depth,
        path=None if path is None else str(path),
        hash=job.hash,
    )
    host.tell("transfer", dataclasses.asdict(settings))
    host.expect("posted")


def _until_done(roles: dict[HostHandle, str], progress: Progress) -> dict[str, dict[str, Any]]:
    done: dict[str, dict[str, Any]] = {}
    waiting = set(roles)
    moved = time.monotonic()
    received = -1
    while waiting:
        ready, _, _ = select.select(list(waiting), [], [], 1.0)
        for host in ready:
            for document in host.documents():
                if "done" in document:
                    done[roles[host]] = document["done"]
                    waiting.discard(host)
                elif roles[host] == "received" and document.get("progress", -1) > received:
                    received = document["progress"]
                    moved = time.monotonic()
                    progress(received)
        if time.monotonic() - moved > STALL_S:
            raise RunError(f"nothing moved for {STALL_S:g} s, {max(received, 0)} bytes arrived")
    return done
