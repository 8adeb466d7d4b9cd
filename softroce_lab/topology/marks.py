# SPDX-License-Identifier: GPL-2.0-or-later
"""The faults of a lab as marks on its links, and in words below a picture of it."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence

from softroce_lab import units
from softroce_lab.faults.effects import (
    Burst,
    Corrupt,
    Delay,
    Duplicate,
    Effect,
    Fault,
    Queue,
    RandomLoss,
    Reorder,
    probability,
)
from softroce_lab.topology.layout import Mark, Marks, rows
from softroce_lab.topology.plan import Plan
from softroce_lab.topology.validation import listed

Text = Callable[[Fault], str]


def marks(faults: Iterable[Fault], text: Text) -> dict[int, Mark]:
    """What to show of each directed link's faults; `text` says each in full."""
    grouped: dict[int, list[Fault]] = collections.defaultdict(list)
    for fault in faults:
        grouped[fault.directed_link].append(fault)
    return {
        number: Mark(
            texts=tuple(text(fault) for fault in on_link),
            label=" ".join(dict.fromkeys(short(fault.effect) for fault in on_link)),
            down=any(fault.word == "down" and fault.window.always for fault in on_link),
        )
        for number, on_link in grouped.items()
    }


def short(effect: Effect) -> str:
    """An effect in a few characters: "10 ms", "1 Gbit/s", "1 %"."""
    match effect:
        case Delay():
            jitter = f"±{units.format_duration(effect.jitter_ns)}" if effect.jitter_ns else ""
            return units.format_duration(effect.delay_ns) + jitter
        case Queue():
            return units.format_rate(effect.rate_bps) if effect.rate_bps else "queue"
        case RandomLoss():
            return f"{_percent(effect.threshold)} loss"
        case Burst():
            return f"{_percent(effect.begin)} bursts"
        case Corrupt() | Duplicate() | Reorder():
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


def link_names(plan: Plan, directed: Iterable[int]) -> list[str]:
    """`a<->b` where both directions are among `directed`, else `a->b`."""
    wanted = set(directed)
    names = []
    for link in plan.links:
        for number, near, far in link.halves:
            both = number ^ 1 in wanted
            if number in wanted and not (both and number & 1):
                names.append(f"{near.node}{'<->' if both else '->'}{far.node}")
    return names


def summary(plan: Plan, found: Marks) -> list[str]:
    """A large plan in a few lines: the tiers, and the links from each to the next lower one."""
    lines = []
    for tier in rows(plan):
        names = [node.name for node in sorted(tier, key=lambda node: node.index)]
        kinds = collections.Counter(node.kind for node in tier)
        counts = ", ".join(_count(number, kind) for kind, number in kinds.items())
        lines.append(f"tier {tier[0].tier}   {counts:14} {_span(names)}")
        lines += [f"    |    {text}" for text in _links_below(plan, found, tier[0].tier)]
    return lines


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 'es' if thing == 'switch' else 's'}"


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
        faulted = sum(bool(each) for each in marked)
        down = sum(any(mark.down for mark in each) for each in marked)
        parts = [
            _count(len(links), "link"),
            where,
            faulted and f"{faulted} with faults",
            down and f"{down} down",
        ]
        if links:
            texts.append(", ".join(part for part in parts if part))
    return texts
