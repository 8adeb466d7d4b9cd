# SPDX-License-Identifier: GPL-2.0-or-later
"""Fidelity of a run: an emulator without enough CPU gives wrong times; this detects it.

A run is `faithful` when the emulator itself lost nothing, wrote everything down, never stood
still, and decided in time. Thresholds are this project's; all figures they are applied to are in
the manifest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from softroce_lab.telemetry.links import LinkFigures, PortFigures, StageFigures
from softroce_lab.units import format_count, format_duration

LATENESS_P99_LIMIT_NS = 5_000_000
"""A policy that takes up events, or an engine that fires timers, this late is one with other timers
than it was given."""

RELEASE_P99_LIMIT_NS = 100_000
"""A wire stage that releases frames this late has made another delay than it was given."""

STOLEN_LIMIT = 0.05
"""Share of the CPUs' time without which goodput and completion times are not the transport's."""

PAUSE_LIMIT_NS = 100_000_000
"""A process that stood still for longer has not emulated what it was there for. Shorter pauses are
not recorded (`Pauses::kLeastNs` of native/system/pauses.hpp)."""

THRESHOLDS = {
    "emulator_drops": 0,
    "records_lost": 0,
    "emulator_reordered": 0,
    "lateness_p99_ns": LATENESS_P99_LIMIT_NS,
    "release_p99_ns": RELEASE_P99_LIMIT_NS,
    "stolen_share": STOLEN_LIMIT,
    "pause_ns": PAUSE_LIMIT_NS,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Pause:
    """A time in which a process did not run although it had to: stopped, or without a CPU."""

    process: str
    begin_ns: int
    length_ns: int

    @classmethod
    def within(
        cls, process: str, pauses: Iterable[tuple[int, int]], begin_ns: int, end_ns: int
    ) -> list[Self]:
        """The parts of a process's pauses, (begin, end), that lie between two moments.

        Their times are since the first of them.
        """
        clipped = ((max(since, begin_ns), min(until, end_ns)) for since, until in pauses)
        return [
            cls(process, since - begin_ns, until - since)
            for since, until in clipped
            if since < until
        ]


@dataclasses.dataclass(frozen=True, slots=True)
class Fidelity:
    """The verdict on a run; no reasons: faithful."""

    reasons: tuple[str, ...]

    @property
    def faithful(self) -> bool:
        return not self.reasons

    def __str__(self) -> str:
        return "faithful" if self.faithful else "not faithful: " + "; ".join(self.reasons)

    def document(self) -> dict[str, Any]:
        verdict = "faithful" if self.faithful else "not faithful"
        return {"verdict": verdict, "reasons": list(self.reasons), "thresholds": THRESHOLDS}


def judge(
    links: Sequence[LinkFigures],
    ports: Sequence[PortFigures],
    hosts: Mapping[str, Mapping[str, Any]],
    stage: StageFigures,
    *,
    unwritten: int,
    stolen: float,
    pauses: Iterable[Pause] = (),
) -> Fidelity:
    """The verdict from links, ports, the wire stage, and what each host process reported.

    `unwritten`: records of drops and captured packets that the monitor's files had no room for;
    `stolen`: share of the CPUs' time that the hypervisor gave to others; `pauses`: of all
    processes of the run, while its workload went on.
    """
    lost = _lost(links, ports, stage, unwritten)
    late = (*_disturbed(links, stage), *_late(hosts))
    return Fidelity((*_paused(pauses), *lost, *late, *_stolen(stolen)))


def _paused(pauses: Iterable[Pause]) -> list[str]:
    longest: dict[str, int] = {}
    for pause in pauses:
        longest[pause.process] = max(pause.length_ns, longest.get(pause.process, 0))
    found = [
        (length_ns, f"{process} did not run for {format_duration(length_ns)}")
        for process, length_ns in longest.items()
        if length_ns > PAUSE_LIMIT_NS
    ]
    return _worst(found, "process")


def _stolen(share: float) -> list[str]:
    if share <= STOLEN_LIMIT:
        return []
    return [f"the hypervisor gave {share:.0%} of the CPUs' time to others"]


def _disturbed(links: Sequence[LinkFigures], stage: StageFigures) -> list[str]:
    """Effects of shaped links that no rule configured."""
    late, disordered = [], []
    how = "" if stage.fifo else ", without real-time priority"
    for link in links:
        late_ns = link.wire.late_p99_ns if link.wire else None
        if late_ns is not None and late_ns > RELEASE_P99_LIMIT_NS:
            text = f"{link.name} left {format_duration(late_ns)} late or more{how}"
            late.append((late_ns, f"1 % of the frames on {text}"))
        if link.wire and link.wire.disordered:
            count = link.wire.disordered
            text = f"the emulator let {count} frames overtake others on {link.name}"
            disordered.append((count, text))
    return [*_worst(late, "link"), *_worst(disordered, "link")]


def _worst(found: Sequence[tuple[int, str]], where: str) -> list[str]:
    """One line a cause: where it was worst, and in how many more places it was found."""
    if not found:
        return []
    _, text = max(found, key=lambda each: abs(each[0]))
    more = len(found) - 1
    return [f"{text} (and {format_count(more, f'more {where}')})" if more else text]


def _lost(
    links: Sequence[LinkFigures], ports: Sequence[PortFigures], stage: StageFigures, unwritten: int
) -> list[str]:
    drops = [
        (link.emulator_drops, f"the emulator lost {link.emulator_drops} frames on {link.name}")
        for link in links
        if link.emulator_drops
    ]
    refused = [
        (port.emulator_drops, f"the socket of {port.node} lost {port.emulator_drops} frames")
        for port in ports
        if port.emulator_drops
    ]
    reasons = [*_worst(drops, "link"), *_worst(refused, "host")]
    if stage.lost:
        reasons.append(f"{stage.lost} frames were lost on their way to the wire stage")
    unrecorded = unwritten + sum(link.records_lost for link in links)
    if unrecorded:
        reasons.append(f"{unrecorded} records of drops or captured packets were lost")
    return reasons


def _late(hosts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    decisions, timers = [], []
    for name, host in hosts.items():
        decision_ns = host["decision_lateness_ns"]["p99"]
        if decision_ns > LATENESS_P99_LIMIT_NS:
            text = f"1 % of the decisions of {name} came {format_duration(decision_ns)}"
            decisions.append((decision_ns, f"{text} late or more"))
        timer_ns = percentile_log2_ns(host["timer_lateness_log2_ns"], 0.99)
        if timer_ns > LATENESS_P99_LIMIT_NS:
            text = f"1 % of the timers of {name} fired up to {format_duration(timer_ns)}"
            timers.append((timer_ns, f"{text} late, or more"))
    return [*_worst(decisions, "host"), *_worst(timers, "host")]


def percentile_log2_ns(counts: Sequence[int], fraction: float) -> int:
    """Upper bound of the bucket [2**i, 2**(i+1)) ns that holds the percentile; 0 without any."""
    left = fraction * sum(counts)
    for exponent, count in enumerate(counts):
        left -= count
        if left <= 0 < count:
            return 2 << exponent
    return 0
