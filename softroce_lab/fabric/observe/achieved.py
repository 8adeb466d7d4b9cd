# SPDX-License-Identifier: GPL-2.0-or-later
"""The configured and the measured values of the faults of a running lab."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from softroce_lab.fabric.bpf.xdp import XdpFabric
from softroce_lab.fabric.daemons.wire import WireStage
from softroce_lab.fabric.daemons.wire_layout import Histogram, LinkFigures
from softroce_lab.fabric.observe.view import moment_ns
from softroce_lab.faults import expected, lines, text
from softroce_lab.faults.layout import Hits
from softroce_lab.plan import locate
from softroce_lab.plan.effects import Delay, Fault, Queue
from softroce_lab.plan.plan import Plan

PERCENTILES = {50: 1, 99: 1, 99.9: 1000}  # with the fewest frames that each needs


@dataclasses.dataclass(frozen=True, slots=True)
class Achieved:
    fault: Fault
    link: str  # "leaf1->spine1"
    hits: Hits | None  # of what XDP decides
    wire: LinkFigures | None  # of a link that the wire stage shapes, since its shape was set
    rate_bps: float | None  # since then
    now_ns: int  # the moment of the timeline

    @property
    def moment(self) -> str:
        """`acts now`, `acts in 1.2 s`, `over`; empty if it always acts."""
        return lines.moment(self.fault.window, self.now_ns)

    def document(self) -> dict[str, Any]:
        """For `--json`: requested and achieved, in the units of their names."""
        return {
            "link": self.link,
            "directed_link": self.fault.directed_link,
            "rule": self.fault.rule,
            "word": self.fault.word,
            "text": text.text(self.fault),
            "key": self.fault.key,
            "acts": self.fault.window.acts(self.now_ns),
            "next_change_ns": self.fault.window.next_change_ns(self.now_ns),
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
            released = self.wire.released
            return {
                "residence_ns": _percentiles(self.wire.residence, released),
                "late_ns": _percentiles(self.wire.late, released),
                "percentile_error": Histogram.ERROR,
                "released": released,
            }
        return {
            "rate_bps": self.rate_bps,
            "most_waiting_packets": self.wire.most_waiting_packets,
            "most_waiting_bytes": self.wire.most_waiting_bytes,
            "dropped": self.wire.dropped_limit,
            "marked": self.wire.marked,
            "trimmed": self.wire.trimmed,
        }


def _percentiles(times: Histogram, frames: int) -> dict[str, int | None]:
    """None where there are too few frames for it."""
    return {
        f"p{p:g}": times.percentile(p) if frames >= least else None
        for p, least in PERCENTILES.items()
    }


def look(
    plan: Plan, xdp: XdpFabric, stage: WireStage | None, links: Iterable[int]
) -> Iterator[Achieved]:
    """Every fault on these directed links. `stage` is None if no link is shaped."""
    names, now_ns = locate.arrows(plan), moment_ns(xdp)
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
        yield Achieved(fault, names[link], found, wire, rate_bps, now_ns)
