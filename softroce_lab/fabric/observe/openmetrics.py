# SPDX-License-Identifier: GPL-2.0-or-later
"""The counters of a lab as metrics of prometheus_client: softroce_<kind>_<counter>{lab,...}."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from softroce_lab.fabric.observe.stats import Stats
from softroce_lab.telemetry import counters

_ENGINES = "a counter of the lab's engine: docs/reference/counters.md"
_KERNELS = "a counter of the kernel's RDMA device"
_HARDWARE = {counter.name: counter.meaning for counter in counters.HARDWARE}


class Metrics(Collector):
    """One moment's counters, as the library collects metrics."""

    def __init__(self, now: Stats) -> None:
        self._now = now

    def collect(self) -> Iterator[Metric]:
        """Each metric with the samples of all labels."""
        found: dict[str, Metric] = {}

        def metric(name: str, meaning: str, kind: Literal["counter", "gauge"]) -> Metric:
            return found.setdefault(name, Metric(name, meaning, kind))

        for group in self._now.groups():
            for counter, value in group.counts.items():
                name = f"softroce_{group.kind}_{counter.removeprefix('port_')}"
                counts = metric(name, _meaning(group.kind, counter), "counter")
                counts.add_sample(f"{name}_total", dict(group.labels), value)
        for published in self._now.published:
            pid = str(published.snapshot.pid)
            labels = {"lab": self._now.lab, "port": published.port, "pid": pid}
            lives = metric("softroce_rnic_up", "whether the process lives", "gauge")
            lives.add_sample(lives.name, labels, int(published.alive))
        return iter(found.values())


def text(now: Stats) -> str:
    return generate_latest(Metrics(now)).decode()


def _meaning(kind: str, name: str) -> str:
    known = {"port": counters.PORT, "link": counters.LINK}.get(kind, _HARDWARE)
    return known.get(name, _KERNELS if kind == "kernel" else _ENGINES)
