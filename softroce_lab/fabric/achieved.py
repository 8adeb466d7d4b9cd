# SPDX-License-Identifier: GPL-2.0-or-later
"""What the faults of a lab that is up were asked to do, beside what they have done since."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from softroce_lab.fabric.fault_layout import Hits
from softroce_lab.fabric.wire import WireStage
from softroce_lab.fabric.wire_layout import LinkFigures
from softroce_lab.fabric.xdp import XdpFabric
from softroce_lab.faults import expected, text
from softroce_lab.faults.effects import Delay, Fault, Queue
from softroce_lab.topology.plan import Plan

PERCENTILES = (50, 99, 99.9)


@dataclasses.dataclass(frozen=True, slots=True)
class Achieved:
    """A fault on one directed link."""

    fault: Fault
    link: str  # "leaf1->spine1"
    hits: Hits | None  # of what XDP decides
    wire: LinkFigures | None  # of a link that the wire stage shapes, since its shape was set
    rate_bps: float | None  # since then

    def document(self) -> dict[str, Any]:
        """For `--json`: requested and achieved, in the units that the names say."""
        return {
            "link": self.link,
            "directed_link": self.fault.directed_link,
            "rule": self.fault.rule,
            "word": self.fault.word,
            "text": text.text(self.fault),
            "key": self.fault.key,
            "requested": self._requested(),
            "achieved": self._achieved(),
        }

    def _requested(self) -> dict[str, Any]:
        match self.fault.effect:
            case Delay(delay_ns, jitter_ns):
                return {"delay_ns": delay_ns, "jitter_ns": jitter_ns}
            case Queue() as queue:
                wanted = dataclasses.asdict(queue)
                return {name: value for name, value in wanted.items() if name != "kind"}
            case effect:
                return {"rate": expected.rate(effect), "mean_run": expected.mean_run(effect)}

    def _achieved(self) -> dict[str, Any] | None:
        if self.hits is not None:
            hits = self.hits
            counts = {"seen": hits.seen, "hits": hits.hits}
            return {**counts, "rate": hits.rate, "mean_run": hits.mean_run}
        if self.wire is None:
            return None
        if isinstance(self.fault.effect, Delay):
            found = {f"p{p:g}": self.wire.residence.percentile(p) for p in PERCENTILES}
            late = {f"p{p:g}": self.wire.late.percentile(p) for p in PERCENTILES}
            return {"residence_ns": found, "late_ns": late, "released": self.wire.released}
        return {
            "rate_bps": self.rate_bps,
            "most_waiting_packets": self.wire.most_waiting_packets,
            "most_waiting_bytes": self.wire.most_waiting_bytes,
            "dropped": self.wire.dropped_limit,
            "marked": self.wire.marked,
            "trimmed": self.wire.trimmed,
        }


def look(
    plan: Plan, xdp: XdpFabric, stage: WireStage | None, links: Iterable[int]
) -> Iterator[Achieved]:
    """Every fault on these directed links. `stage` is None if no link is shaped."""
    names = {n: f"{near.node}->{far.node}" for link in plan.links for n, near, far in link.halves}
    wanted = set(links)
    hits = {link: {hit.rule_id: hit for hit in found} for link, found in xdp.hits().items()}
    figures: dict[int, tuple[LinkFigures, float | None]] = {}
    for fault in plan.faults:
        link = fault.directed_link
        if link not in wanted:
            continue
        shaped = isinstance(fault.effect, Delay | Queue)
        if shaped and stage is not None and link not in figures:
            base, now = stage.base(link), stage.link(link)
            figures[link] = now - base, now.rate_since(base)
        found = None if shaped else hits.get(link, {}).get(fault.rule_id)
        wire, rate_bps = figures.get(link, (None, None)) if shaped else (None, None)
        yield Achieved(fault, names[link], found, wire, rate_bps)
