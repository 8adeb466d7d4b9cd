# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules -> loss on directed links, each with its threshold and its own stream of randomness."""

from __future__ import annotations

import collections
import dataclasses
import fnmatch
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from softroce_lab import units
from softroce_lab.faults.model import FaultRule, LinkPattern, Loss
from softroce_lab.topology.digest import with_digest
from softroce_lab.topology.plan import FaultKey, Link, LossRule, Node, Plan, Port
from softroce_lab.topology.validation import listed
from softroce_lab.topology.yaml_source import NOWHERE, Place, Source

MAX_RULES_PER_DIRECTED_LINK = 8  # what a port's map entry in the XDP switch holds
LINK_RULE = "link:loss"  # the rule of all `loss` keys at links; no written rule can be called so

Half: TypeAlias = tuple[int, Port, Port]  # directed link, its transmitting and its receiving port


@dataclasses.dataclass(frozen=True, slots=True)
class FaultRules:
    """Rules with the place they were written at, for errors that only a topology reveals."""

    rules: tuple[FaultRule, ...]
    source: Source = NOWHERE
    place: Place = ("faults",)


@dataclasses.dataclass(frozen=True, slots=True)
class _Placed:
    """A rule's loss on the directed links it acts on."""

    name: str
    key: FaultKey
    loss: Loss
    halves: tuple[Half, ...]
    source: Source
    place: Place


def resolve(
    rules: FaultRules,
    nodes: Sequence[Node],
    links: Sequence[Link],
    seed: int,
    *,
    before: Sequence[LossRule] = (),
) -> tuple[LossRule, ...]:
    """Resolve rules to add after those in `before`, whose numbering they continue.

    UserError if a rule's pattern matches no link, a name is used twice, or a directed link gets
    more rules than a switch holds.
    """
    halves = [half for link in links for half in link.halves]
    placed = _place(rules, [node.name for node in nodes], halves, {rule.rule for rule in before})
    return _number(placed, nodes, seed, before)


def resolve_links(
    losses: Mapping[int, Loss], nodes: Sequence[Node], links: Sequence[Link], seed: int
) -> tuple[LossRule, ...]:
    """Resolve the `loss` keys of links, given by link index; both directions are hit.

    All are one rule, so that with equal probabilities a packet's fate does not hang on which of
    several parallel links it takes.
    """
    placed = [
        _Placed(LINK_RULE, "identity", loss, links[index].halves, NOWHERE, ())
        for index, loss in losses.items()
    ]
    return _number(placed, nodes, seed, ())


def arm(plan: Plan, rules: FaultRules, *, seed: int | None = None) -> Plan:
    """Return `plan` with the faults of a profile added to its own; errors as `resolve`."""
    seed = plan.seed if seed is None else seed
    added = resolve(rules, plan.nodes, plan.links, seed, before=plan.faults)
    return with_digest(dataclasses.replace(plan, faults=plan.faults + added))


def _place(
    rules: FaultRules, names: Sequence[str], halves: Sequence[Half], taken: set[str]
) -> Iterable[_Placed]:
    for index, rule in enumerate(rules.rules):
        place = (*rules.place, index)
        if rule.name in taken:
            what = f"rule name {rule.name!r} is used twice"
            raise rules.source.error((*place, "name"), what, hint="streams are keyed by it")
        taken.add(rule.name)
        hit = _match(rule.links, names, halves)
        if not hit:
            what = f"pattern {str(rule.links)!r} matches no link"
            hint = f"the nodes are {listed(names)}"
            raise rules.source.error((*place, "links"), what, hint=hint)
        yield _Placed(rule.name, rule.key, rule.loss, hit, rules.source, place)


def _match(pattern: LinkPattern, names: Sequence[str], halves: Sequence[Half]) -> tuple[Half, ...]:
    left = set(fnmatch.filter(names, pattern.left))
    right = set(fnmatch.filter(names, pattern.right))

    def hits(half: Half) -> bool:
        _, sender, receiver = half
        there = sender.node in left and receiver.node in right
        return there or (pattern.both and sender.node in right and receiver.node in left)

    return tuple(filter(hits, halves))


def _number(
    placed: Iterable[_Placed], nodes: Sequence[Node], seed: int, before: Sequence[LossRule]
) -> tuple[LossRule, ...]:
    tiers = {node.name: node.tier for node in nodes}
    load = collections.Counter(rule.directed_link for rule in before)
    resolved: list[LossRule] = []
    for rule in placed:
        for half in rule.halves:
            directed_link, sender, receiver = half
            load[directed_link] += 1
            if load[directed_link] > MAX_RULES_PER_DIRECTED_LINK:
                what = (
                    f"more than {MAX_RULES_PER_DIRECTED_LINK} rules act on {sender} -> {receiver}"
                )
                raise rule.source.error(rule.place, what)
            resolved.append(
                LossRule(
                    rule=rule.name,
                    rule_id=len(before) + len(resolved),
                    directed_link=directed_link,
                    key=rule.key,
                    probability=float(rule.loss.random),
                    threshold=units.threshold(rule.loss.random),
                    stream=_stream(rule, half, tiers, seed),
                )
            )
    return tuple(resolved)


def _stream(rule: _Placed, half: Half, tiers: Mapping[str, int], seed: int) -> int:
    """Derive the stream as `plan.LossRule` says."""
    _, sender, receiver = half
    if rule.key == "index":
        return stream_key(seed, rule.name, str(sender), str(receiver))
    here, there = tiers[sender.node], tiers[receiver.node]
    direction = "up" if here < there else "down" if here > there else "across"
    return stream_key(seed, rule.name, min(here, there), direction)


def stream_key(seed: int, rule: str, *parts: str | int) -> int:
    """Hash a canonical tuple to 64 bits: BLAKE2b of it as compact JSON, big-endian."""
    canonical = json.dumps([seed, rule, *parts], separators=(",", ":")).encode()
    return int.from_bytes(hashlib.blake2b(canonical, digest_size=8).digest(), "big")
