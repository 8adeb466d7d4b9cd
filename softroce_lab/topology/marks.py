# SPDX-License-Identifier: GPL-2.0-or-later
"""The faults of a lab as marks on its links, and in words below a picture of it."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from softroce_lab import units
from softroce_lab.inputs.validation import listed
from softroce_lab.plan.effects import (
    Corrupt,
    Cut,
    Delay,
    Duplicate,
    Effect,
    Fault,
    LossModel,
    Queue,
    Reorder,
    probability,
)
from softroce_lab.plan.locate import link_names
from softroce_lab.plan.plan import Link, Node, Plan

Texts = Callable[[Sequence[Fault]], tuple[str, ...]]


def marks(faults: Iterable[Fault], texts: Texts, now_ns: int | None = None) -> dict[int, Mark]:
    """What to show of each directed link's faults; `texts` has those of one link in full.

    `now_ns` is the moment of the timeline; None: of a lab that is not up, so a link is down if it
    always is, and every other fault is taken to act.
    """
    grouped: dict[int, list[Fault]] = collections.defaultdict(list)
    for fault in faults:
        grouped[fault.directed_link].append(fault)
    return {number: _mark(on_link, texts, now_ns) for number, on_link in grouped.items()}


def _mark(on_link: Sequence[Fault], texts: Texts, now_ns: int | None) -> Mark:
    acting = [fault for fault in on_link if now_ns is None or fault.window.acts(now_ns)]
    downs = [fault for fault in acting if fault.word == "down"]
    injected = [fault for fault in acting if not fault.is_of_link]
    return Mark(
        texts=texts(on_link),
        label=" ".join(dict.fromkeys(short(fault.effect) for fault in injected or acting)),
        down=any(now_ns is not None or fault.window.always for fault in downs),
        acts=bool(acting),
        is_fault=bool(injected),
    )


def style(link: Link, marks: Marks) -> Literal["", "fault", "down"]:
    found = [marks[number] for number, _, _ in link.halves if number in marks]
    if any(mark.down for mark in found):
        return "down"
    return "fault" if any(mark.is_fault for mark in found) else ""


def short(effect: Effect) -> str:
    """An effect in a few characters: "10 ms", "1 Gbit/s", "1 %"."""
    match effect:
        case Delay():
            jitter = f"±{units.format_duration(effect.jitter_ns)}" if effect.jitter_ns else ""
            return units.format_duration(effect.delay_ns) + jitter
        case Queue():
            return units.format_rate(effect.rate_bps) if effect.rate_bps else "queue"
        case LossModel():
            return effect.short
        case Cut() | Corrupt() | Duplicate() | Reorder():
            return f"{_percent(effect.threshold)} {effect.kind}"
    return effect.kind


def _percent(threshold: int) -> str:
    return f"{100 * probability(threshold):.3g} %"


def legend(plan: Plan, found: Marks) -> list[tuple[str, str]]:
    """Every fault with the links it acts on: (text, links), in the order of the plan."""
    where: dict[str, list[int]] = collections.defaultdict(list)
    for number, mark in found.items():
        for text in mark.texts:
            where[text].append(number)
    return [(text, listed(link_names(plan, numbers), 6)) for text, numbers in where.items()]


def summary(plan: Plan, found: Marks) -> list[str]:
    """A large plan in a few lines: the tiers, and the links from each to the next lower one."""
    lines = []
    for tier in rows(plan):
        names = [node.name for node in sorted(tier, key=lambda node: node.index)]
        kinds = collections.Counter(node.kind for node in tier)
        counts = ", ".join(units.format_count(number, kind) for kind, number in kinds.items())
        lines.append(f"tier {tier[0].tier}   {counts:14} {_span(names)}")
        lines += [f"    |    {text}" for text in _links_below(plan, found, tier[0].tier)]
    return lines


def _span(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{names[0]}, {names[1]} ... {names[-1]}"


def _links_below(plan: Plan, found: Marks, tier: int) -> list[str]:
    """How many links lead from a tier to the next lower one, and within it."""
    tiers = {node.name: node.tier for node in plan.nodes}
    texts = []
    for there, where in ((tier, "within the tier"), (tier - 1, "")):
        pairs = {tier, there}
        links = [link for link in plan.links if {tiers[link.a.node], tiers[link.b.node]} == pairs]
        marked = [[found[n] for n, _, _ in link.halves if n in found] for link in links]
        faulted = sum(any(mark.is_fault for mark in each) for each in marked)
        down = sum(any(mark.down for mark in each) for each in marked)
        parts = [
            units.format_count(len(links), "link"),
            where,
            faulted and f"{faulted} with faults",
            down and f"{down} down",
        ]
        if links:
            texts.append(", ".join(part for part in parts if part))
    return texts


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    texts: tuple[str, ...]  # each fault in full
    label: str  # in short: what fits beside a line; of a link with a fault only the faults
    down: bool = False
    acts: bool = True  # at least one of them, at the moment that is looked at
    is_fault: bool = True  # one that acts is more than the rate and the delay of the topology


Marks = Mapping[int, Mark]  # by directed link; those without faults are absent


def rows(plan: Plan) -> tuple[tuple[Node, ...], ...]:
    """The tiers, highest first; each node stands above the middle of what it leads to.

    Links join equal or adjacent tiers only, since a tier is the distance to the nearest host.
    """
    below = _lower_neighbours(plan)
    made: list[tuple[Node, ...]] = []
    place: dict[str, float] = {}
    for tier in range(1 + max(node.tier for node in plan.nodes)):
        members = [node for node in plan.nodes if node.tier == tier]
        middle = {node.name: _mean([place[name] for name in below[node.name]]) for node in members}
        members.sort(key=lambda node: (middle[node.name], node.index))
        for i, node in enumerate(members):
            place[node.name] = (2 * i + 1) / (2 * len(members))
        made.append(tuple(members))
    return tuple(reversed(made))


def _lower_neighbours(plan: Plan) -> dict[str, list[str]]:
    tiers = {node.name: node.tier for node in plan.nodes}
    below: dict[str, list[str]] = {name: [] for name in tiers}
    for link in plan.links:
        for _, near, far in link.halves:
            if tiers[far.node] < tiers[near.node]:
                below[near.node].append(far.node)
    return below


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 9) if values else 0.0
