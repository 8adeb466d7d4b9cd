# SPDX-License-Identifier: GPL-2.0-or-later
"""All counters of a lab that is up, read while other processes run (docs/reference/counters.md).

Ports and links are counted by the XDP programs and the wire stage since the lab came up; RNICs and
queue pairs by the processes that own the ports, since they began; kernel hosts by their kernel.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from softroce_lab.errors import RunError, UserError
from softroce_lab.fabric import guests
from softroce_lab.fabric.bpf.layout import PortCounters
from softroce_lab.fabric.daemons.wire_layout import LinkFigures
from softroce_lab.fabric.observe import describe, traffic
from softroce_lab.fabric.observe.traffic import LinkCounts, Meter, Sample
from softroce_lab.fabric.observe.view import View
from softroce_lab.plan import locate
from softroce_lab.plan.plan import Node, Plan, Port
from softroce_lab.telemetry import counters_file
from softroce_lab.telemetry.counters_file import Published


@dataclasses.dataclass(frozen=True, slots=True)
class Chosen:
    ports: frozenset[str]  # as node:interface
    links: frozenset[int]  # directed

    @classmethod
    def of(cls, plan: Plan, names: Sequence[str]) -> Chosen:
        """Nodes, ports and links by their names, globs too; all without names. UserError."""
        if not names:
            everywhere = frozenset(str(port) for node in plan.nodes for port in node.ports)
            return cls(everywhere, frozenset(number for number, _, _ in plan.halves))
        ports: set[str] = set()
        links: set[int] = set()
        for name in names:
            if "->" in name:
                links |= {number for number, _, _ in locate.halves(plan, name)}
            else:
                ports |= {str(port) for port in _ports(plan, name)}
        return cls(frozenset(ports), frozenset(links))


def _ports(plan: Plan, name: str) -> set[Port]:
    found = locate.ports_like(plan, name)
    if found:
        return found
    if ":" in name:
        return {locate.port(plan, name)}  # which reports the error
    return set(locate.node(plan, name).ports)


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    kind: str  # port, link, rnic, qp, kernel
    labels: Mapping[str, str]
    counts: Mapping[str, int]

    @property
    def title(self) -> str:
        labels = self.labels
        if self.kind == "qp":
            return f"{labels['port']} qp {labels['qp']}"
        if self.kind == "rnic":
            return f"{labels['port']} process {labels['pid']}"
        return labels.get("link") or labels.get("port") or f"{labels['host']} {labels['device']}"


@dataclasses.dataclass(frozen=True, slots=True)
class Stats:
    plan: Plan
    time_ns: int  # CLOCK_MONOTONIC
    ports: Mapping[str, Mapping[str, int]]
    links: Mapping[str, Mapping[str, int]]  # counters without a source are absent
    published: Sequence[Published]
    kernels: Mapping[tuple[str, str], Mapping[str, int]]  # by host and device
    notes: Sequence[str]

    @property
    def lab(self) -> str:
        return self.plan.name

    def groups(self) -> Iterator[Group]:
        for port, counts in self.ports.items():
            yield Group("port", {"lab": self.lab, "port": port}, counts)
        for link, counts in self.links.items():
            yield Group("link", {"lab": self.lab, "link": link}, counts)
        for published in self.published:
            if published.alive:
                yield from self._rnic(published)
        for (host, device), counts in self.kernels.items():
            yield Group("kernel", {"lab": self.lab, "host": host, "device": device}, counts)

    def _rnic(self, published: Published) -> Iterator[Group]:
        at = {
            "lab": self.lab,
            "host": published.port.partition(":")[0],
            "port": published.port,
            "pid": str(published.snapshot.pid),
        }
        document = published.snapshot.document()
        yield Group("rnic", at, _merged(document))
        for qp in document["qps"]:
            labels = at | {"qp": str(qp["qp"]), "type": qp["type"]}
            yield Group("qp", labels, _merged(qp))

    def document(self) -> dict[str, Any]:
        return {
            "schema_version": describe.SCHEMA_VERSION,
            "lab": self.lab,
            "monotonic_ns": self.time_ns,
            "hosts": [
                {"host": node.name, "counters": counts}
                for node in self.plan.hosts
                if (counts := self._of_host(node))
            ],
            "ports": [{"port": port, "counters": dict(c)} for port, c in self.ports.items()],
            "links": [{"link": link, "counters": dict(c)} for link, c in self.links.items()],
            "rnics": [self._published(published) for published in self.published],
            "kernel_hosts": [
                {"host": host, "device": device, "hw_counters": dict(counts)}
                for (host, device), counts in self.kernels.items()
            ],
            "notes": list(self.notes),
        }

    def _of_host(self, node: Node) -> dict[str, int]:
        total: Counter[str] = Counter()
        for group in self.groups():
            owner = group.labels.get("host") or group.labels.get("port", "").partition(":")[0]
            if owner == node.name and group.kind != "qp":
                total.update(group.counts)
        return dict(total)

    def _published(self, published: Published) -> dict[str, Any]:
        snapshot = published.snapshot
        return {
            "host": published.port.partition(":")[0],
            "port": published.port,
            "pid": snapshot.pid,
            "alive": published.alive,
            "age_ns": self.time_ns - snapshot.taken_ns,
            **snapshot.document(),
        }


def _merged(document: Mapping[str, Any]) -> dict[str, int]:
    """A counter that has one name here and there has one value, too."""
    return {**document["hw_counters"], **document["engine"]}


class Collector:
    """Reads the counters of a lab again and again."""

    def __init__(self, seen: View, names: Sequence[str], meter: Meter) -> None:
        """Use `collecting`."""
        self._seen = seen
        self._meter = meter
        self._chosen = Chosen.of(seen.plan, names)

    def collect(self) -> Stats:
        plan = self._seen.plan
        sample = self._meter.sample()
        names = locate.arrows(plan)
        links = {
            names[number]: _known(sample.counts[number]) for number in sorted(self._chosen.links)
        }
        published = [
            each
            for each in counters_file.read_all(self._seen.directory / counters_file.DIRECTORY)
            if each.port in self._chosen.ports
        ]
        kernels, troubles = self._kernels()
        return Stats(
            plan=plan,
            time_ns=time.monotonic_ns(),
            ports=self._ports(sample),
            links=links,
            published=published,
            kernels=kernels,
            notes=[*_notes(published), *troubles],
        )

    def _ports(self, sample: Sample) -> dict[str, dict[str, int]]:
        hosts = {node.name for node in self._seen.plan.hosts}
        counts = {}
        for number, near, far in self._seen.plan.halves:
            if str(near) not in self._chosen.ports:
                continue
            here, link = sample.ports[near.ifindex], sample.counts[number]
            there = sample.ports[far.ifindex]
            if near.node in hosts:  # what a host sends is first seen at the far end
                sent = there.rx_bytes, there.rx_packets
            else:
                sent = _sent_by_switch(here, there, sample.stage and sample.stage[number])
            counts[str(near)] = _port(here, *sent, link)
        return dict(sorted(counts.items()))

    def _kernels(self) -> tuple[dict[tuple[str, str], Mapping[str, int]], list[str]]:
        found: dict[tuple[str, str], Mapping[str, int]] = {}
        troubles = []
        for node in self._seen.plan.guests:
            kind = guests.kind(node.kind)
            try:
                with self._seen.guest(node.name) as guest:
                    devices = kind.counters(guest, node, self._chosen.ports)
            except RunError as error:
                troubles.append(f"{node.name}: {error}")
            else:
                found |= {(node.name, device): counts for device, counts in devices.items()}
        return found, troubles


@contextlib.contextmanager
def collecting(seen: View, names: Sequence[str]) -> Iterator[Collector]:
    """A collector of what `names` stand for. UserError, LabError if the lab's maps are gone."""
    if not seen.is_up:
        raise UserError(f"the lab {seen.plan.name} is not up", hint="lab up TOPOLOGY")
    Chosen.of(seen.plan, names)  # reports errors before anything is opened
    with traffic.metering(seen) as meter:
        yield Collector(seen, names, meter)


def _known(counts: LinkCounts) -> dict[str, int]:
    return {name: value for name, value in counts._asdict().items() if value is not None}


def _notes(published: Sequence[Published]) -> list[str]:
    notes = []
    for each in published:
        snapshot = each.snapshot
        if not each.alive:
            notes.append(
                f"{each.port}: process {snapshot.pid} was killed; --json has its last counts"
            )
        hidden = snapshot.qps_alive - len(snapshot.qps)
        if hidden:
            notes.append(f"{each.port}: {hidden} more queue pairs are not shown one by one")
    return notes


def _sent_by_switch(
    counted: PortCounters, far: PortCounters, stage: LinkFigures | None
) -> tuple[int, int]:
    """Bytes and frames; `stage` has the figures of the link that begins there.

    The far end responds to the switch's own probe, which is not counted as sent.
    """
    frames = counted.tx_packets + counted.answered + far.answered
    if stage is None:
        return counted.tx_bytes, frames
    return counted.tx_bytes + stage.released_bytes, frames + stage.released


def _port(counted: PortCounters, octets: int, frames: int, link: LinkCounts) -> dict[str, int]:
    return {
        "port_xmit_data": octets // 4,
        "port_rcv_data": counted.rx_bytes // 4,
        "port_xmit_packets": frames,
        "port_rcv_packets": counted.rx_packets,
        "port_xmit_discards": link.down + (link.queue or 0),
        "port_rcv_errors": counted.malformed + counted.unsupported,
        "port_rcv_switch_relay_errors": counted.no_route + counted.ttl_exceeded,
        "port_rcv_constraint_errors": counted.spoofed,
    }
