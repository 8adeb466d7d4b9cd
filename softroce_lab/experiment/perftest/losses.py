# SPDX-License-Identifier: GPL-2.0-or-later
"""What the fabric of a lab did to frames between two moments, as `lab inspect stats` counts it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from softroce_lab.errors import RunError
from softroce_lab.experiment.forecast import idle_rules
from softroce_lab.fabric import guests
from softroce_lab.fabric.observe import traffic
from softroce_lab.fabric.observe.traffic import Meter, Sample
from softroce_lab.fabric.observe.view import View
from softroce_lab.faults.layout import Hits
from softroce_lab.plan import locate

CAUSES = (
    "loss", "down", "queue", "corrupted", "trimmed", "marked", "no_route", "refused", "emulator",
    "to_stage",
)  # fmt: skip
"""Counters of links (telemetry.counters.LINK) of frames that did not pass as they were sent."""

_TRAFFIC = frozenset(("sent_pkts", "rcvd_pkts", "rdma_sends", "rdma_recvs", "ack_deferred"))
"""Counters of rxe that grow without any loss."""


@dataclasses.dataclass(frozen=True, slots=True)
class Losses:
    links: Mapping[str, Mapping[str, int]]
    rules: Mapping[str, int]  # frames by the name of each fault rule that is set
    idle_rules: list[str]
    notes: list[str]  # why a rule did nothing
    kernels: Mapping[str, Mapping[str, int]]  # by kernel host: counters of errors that grew


class Watch:
    def __init__(self, seen: View, meter: Meter) -> None:
        """Use `watching`."""
        self._seen, self._meter = seen, meter
        self._kernels_before = self._kernels()
        self._before = meter.sample()

    def losses(self) -> Losses:
        """What has happened until now. RunError if the lab went down."""
        now, before = self._meter.sample(), self._before
        seen = self._seen.now()
        names = locate.arrows(seen.plan)
        counts = {link: now.counts[link] - before.counts[link] for link in now.counts}
        busy = {link for link, each in counts.items() if each.frames or each.loss or each.down}
        hits = _hits(now, before)
        faults = seen.plan.faults
        rule_of = {fault.rule_id: fault.rule for fault in faults}
        rules = Counter({fault.rule: 0 for fault in faults})
        for each in (hit for found in hits.values() for hit in found if hit.rule_id in rule_of):
            rules[rule_of[each.rule_id]] += each.hits
        idle = idle_rules.find(faults, hits, busy, seen.moment_ns() or 0)
        links = [{"directed_link": n, "sent": 1, "injected_drops": 0} for n in busy]
        return Losses(
            links={
                names[link]: {"frames": each.frames} | lost
                for link, each in counts.items()
                if (lost := {name: n for name in CAUSES if (n := getattr(each, name))})
            },
            rules=dict(rules),
            idle_rules=idle,
            notes=idle_rules.notes(idle, seen.plan, [links]),
            kernels=self._grown(),
        )

    def _kernels(self) -> dict[str, Mapping[str, int]]:
        found: dict[str, Mapping[str, int]] = {}
        for node in self._seen.plan.guests:
            ports = {str(port) for port in node.ports}
            with contextlib.suppress(RunError), self._seen.guest(node.name) as guest:
                devices = guests.kind(node.kind).counters(guest, node, ports)
                found[node.name] = dict(sum((Counter(c) for c in devices.values()), Counter()))
        return found

    def _grown(self) -> dict[str, dict[str, int]]:
        return {
            host: grown
            for host, counts in self._kernels().items()
            if (before := self._kernels_before.get(host)) is not None
            and (
                grown := {
                    name: value - before.get(name, 0)
                    for name, value in counts.items()
                    if name not in _TRAFFIC and value > before.get(name, 0)
                }
            )
        }


def _hits(now: Sample, before: Sample) -> dict[int, list[Hits]]:
    """A rule that was set again counts from 0."""
    earlier = {
        (link, each.rule_id): each.hits for link, found in before.hits.items() for each in found
    }
    return {
        link: [
            Hits(each.rule_id, None, max(0, each.hits - earlier.get((link, each.rule_id), 0)), 0)
            for each in found
        ]
        for link, found in now.hits.items()
    }


@contextlib.contextmanager
def watching(seen: View) -> Iterator[Watch]:
    with traffic.metering(seen) as meter:
        yield Watch(seen, meter)


def lines(losses: Losses) -> Iterator[str]:
    """A line for each link, rule and kernel host that has something to tell."""
    if not losses.links:
        yield "  no link lost or changed a frame"
    for link, counts in losses.links.items():
        lost = ", ".join(f"{name} {counts[name]:,}" for name in CAUSES if name in counts)
        yield f"  {link}: {counts['frames']:,} frames delivered; {lost}"
    for rule, hits in losses.rules.items():
        if hits:
            yield f"  rule {rule}: {hits:,} frames"
    for host, grown in losses.kernels.items():
        yield f"  {host}: " + ", ".join(f"{name} {count:,}" for name, count in grown.items())


def document(losses: Losses) -> dict[str, Any]:
    made = dataclasses.asdict(losses)
    made["kernel_hosts"] = made.pop("kernels")
    return made
