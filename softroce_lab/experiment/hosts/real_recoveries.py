# SPDX-License-Identifier: GPL-2.0-or-later
"""What was done about losses on the real clock: hosts' own records, as rows of recovery.parquet."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

from softroce_lab.experiment import recoveries
from softroce_lab.experiment.hosts.messenger import RailQueuePairs
from softroce_lab.experiment.hosts.report import HostRecords, HostReport
from softroce_lab.experiment.observation import Observed
from softroce_lab.plan.plan import Plan, Port


def _number(port: Port) -> int:
    return int(ipaddress.IPv4Address(str(port.address)))


def recorded(
    plan: Plan,
    rails: Mapping[str, int],
    others: Mapping[str, tuple[int, ...]],
    observed: Observed,
    finished: Mapping[int, tuple[HostReport, HostRecords]],
    begun_ns: int,
) -> tuple[Iterable[Mapping[str, Any]], dict[str, Any]]:  # fmt: skip
    """Parts of recovery.parquet's columns, and what the manifest has of them.

    `rails` and `others`: as `Observation` has them; `finished`: by the index of the host.
    """
    hosts = plan.plain_hosts
    names = {_number(port): node.name for node in hosts for port in node.ports}
    addresses = {
        index: [
            _number(node.ports[rail])
            for rail in (rails.get(node.name, 0), *others.get(node.name, ()))
        ]
        for index, node in enumerate(hosts)
    }
    ends = {
        index: [
            RailQueuePairs(**each | {"of_peer": dict(each["of_peer"])})
            for each in report.queue_pairs
        ]
        for index, (report, _) in finished.items()
    }
    pairs = recoveries.queue_pairs(ends, addresses)
    parts = {
        hosts[index].name: (records.recoveries, records.whys.tolist())
        for index, (_, records) in finished.items()
    }
    found, reasons = recoveries.of_hosts(parts, begun_ns)
    missed = sum(report.recoveries_not_recorded for report, _ in finished.values())
    links = [link.name for link in observed.links]
    facts = {
        "queue_pairs": recoveries.used(pairs, found, observed.injections),
        "recoveries_not_recorded": missed,
    }
    return recoveries.Recorded(found, names, links, pairs, reasons), facts
