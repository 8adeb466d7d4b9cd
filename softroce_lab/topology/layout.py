# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the nodes of a plan go in a picture: tiers as rows, hosts at the bottom."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from softroce_lab.plan.plan import Node, Plan


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """What is to be seen of the faults of a directed link."""

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
