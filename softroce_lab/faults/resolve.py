# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules and the impairments of links -> faults on directed links, each with its own stream."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from softroce_lab.errors import UserError
from softroce_lab.faults import check
from softroce_lab.faults.check import Placed
from softroce_lab.faults.drops import DropEvent
from softroce_lab.faults.model import (
    BESIDE,
    EFFECTS,
    DelaySpec,
    FaultRule,
    Impairments,
    LinkImpairments,
    QueueSpec,
)
from softroce_lab.faults.targets import LinkPattern, parse_end_pattern, parse_link_pattern
from softroce_lab.inputs.validation import listed
from softroce_lab.inputs.yaml_source import NOWHERE, Place, Source
from softroce_lab.plan import base_rtt, locate
from softroce_lab.plan.effects import (
    ALWAYS,
    LINK_RULE,
    TRIM_SHARE,
    Corrupt,
    Cut,
    Delay,
    Down,
    Drop,
    Duplicate,
    Effect,
    Fault,
    FaultKey,
    Filter,
    LossModel,
    NamedDrop,
    Queue,
    Reorder,
    Window,
    Word,
    stream_key,
    turn,
    word_of,
)
from softroce_lab.plan.path_mtu import path_mtu_bytes
from softroce_lab.plan.plan import Half, Plan, with_digest
from softroce_lab.units import threshold


@dataclasses.dataclass(frozen=True, slots=True)
class FaultRules:
    """Rules with the place they were written at, for errors that only a topology reveals."""

    rules: tuple[FaultRule, ...]
    source: Source = NOWHERE
    place: Place = ("faults",)
    first: int = 0  # where in the list at `place` they begin


@dataclasses.dataclass(frozen=True, slots=True)
class LinkFaults:
    """The impairments written at links, in the order of the plan's links."""

    links: tuple[LinkImpairments, ...]
    source: Source = NOWHERE
    place: Place = ("topology", "links")


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """What the faults of one rule share. With `scope`, there is a rule `name:word` a word."""

    name: str
    scope: bool = False
    source: Source = NOWHERE
    place: Place = ()
    key: FaultKey | None = None
    window: Window = ALWAYS

    def rule(self, word: Word) -> str:
        return f"{self.name}:{word}" if self.scope else self.name

    def stream_name(self, word: Word) -> str:
        return self.name if word == "loss" and not self.scope else f"{self.name}:{word}"


@dataclasses.dataclass(frozen=True)
class Ground:
    plan: Plan
    seed: int
    tiers: Mapping[str, int]
    timed: Plan | None  # with the rates and delays that count for sizes in BDP; None: no sizes yet

    @functools.cached_property
    def rtt_ns(self) -> int | None:
        """The base RTT of the fabric."""
        if self.timed is None:
            return None
        return base_rtt.of(self.timed, path_mtu_bytes(self.timed.mtu, 4)).rtt_ns

    @classmethod
    def of(cls, plan: Plan, seed: int | None) -> Ground:
        """`seed` overrides the plan's."""
        tiers = {node.name: node.tier for node in plan.nodes}
        return cls(plan, plan.seed if seed is None else seed, tiers, timed=plan)


def arm(plan: Plan, *added: FaultRules | LinkFaults, seed: int | None = None) -> Plan:
    """Return `plan` with faults added to its own, which keep their ids, all of them in order.

    UserError if a rule's pattern matches no link, a name is used twice, faults on one directed
    link contradict each other, or there are more of them than a switch holds.
    """
    ground = Ground.of(plan, seed)
    rates = (spec.whole_rate for spec in _specs(added))
    if any(rate is not None and rate.queue for rate in rates):
        unsized = list(
            check.bounded(plan, _all(plan, added, dataclasses.replace(ground, timed=None)))
        )
        fresh = [item.fault for item in unsized[len(plan.faults) :]]
        ground = dataclasses.replace(ground, timed=with_faults(plan, plan.faults, fresh))
    placed = check.check(plan, _all(plan, added, ground))
    return with_faults(plan, plan.faults, [item.fault for item in placed[len(plan.faults) :]])


def _specs(added: Iterable[FaultRules | LinkFaults]) -> Iterator[Impairments]:
    for group in added:
        if isinstance(group, FaultRules):
            yield from group.rules
            continue
        for link in group.links:
            yield from (part for part in (link, link.forward, link.backward) if part is not None)


def with_faults(plan: Plan, kept: Sequence[Fault], fresh: Iterable[Fault]) -> Plan:
    """`plan` with some of its faults, which keep their ids, and fresh ones, which get new ids."""
    free = 1 + max((fault.rule_id for fault in plan.faults), default=-1)
    numbered = [
        dataclasses.replace(fault, rule_id=free + n) for n, fault in enumerate(in_order(fresh))
    ]
    return with_digest(dataclasses.replace(plan, faults=tuple(in_order([*kept, *numbered]))))


def _all(plan: Plan, added: Iterable[FaultRules | LinkFaults], ground: Ground) -> Iterator[Placed]:
    yield from map(Placed, plan.faults)
    taken = {fault.rule for fault in plan.faults}
    for group in added:
        if isinstance(group, LinkFaults):
            yield from _at_links(group, ground)
        else:
            yield from _by_rules(group, ground, taken)


def in_order(faults: Iterable[Fault]) -> list[Fault]:
    return sorted(faults, key=lambda fault: turn(fault.effect))


def place(
    spec: Impairments, origin: Origin, halves: Sequence[Half], ground: Ground
) -> Iterator[Placed]:
    """The faults of one set of impairments on directed links, not numbered yet."""
    for effect, packets, where in _lowered(spec, origin):
        word = word_of(effect)
        key = origin.key or ("index" if remembers(effect) else "identity")
        for half in both_ways(ground.plan, halves) if word == "down" else halves:
            fault = Fault(
                rule=origin.rule(word),
                rule_id=-1,
                directed_link=half[0],
                key=key,
                stream=_stream(key, origin.stream_name(word), half, ground),
                effect=_sized(effect, spec, half, ground),
                filter=packets,
                window=origin.window,
            )
            yield Placed(fault, origin.source, (*origin.place, *where))


def both_ways(plan: Plan, halves: Iterable[Half]) -> list[Half]:
    links = sorted({half[0] // 2 for half in halves})
    return [half for link in links for half in plan.links[link].halves]


def _lowered(spec: Impairments, origin: Origin) -> list[Lowered]:
    try:
        return list(lower(spec))
    except UserError as error:
        raise origin.source.error(origin.place, error.what, hint=error.hint) from None


def _at_links(group: LinkFaults, ground: Ground) -> Iterator[Placed]:
    """All are one rule a word, so that with equal probabilities a packet's fate does not hang on
    which of several parallel links it takes.
    """
    for index, spec in enumerate(group.links):
        halves = ground.plan.links[index].halves
        parts: list[tuple[Impairments | None, Place, Sequence[Half]]] = [
            (spec, (), halves),
            (spec.forward, ("forward",), halves[:1]),
            (spec.backward, ("backward",), halves[1:]),
        ]
        for part, key, on in parts:
            if part is not None:
                where = (*group.place, index, *key)
                origin = Origin(LINK_RULE, scope=True, source=group.source, place=where)
                yield from place(part, origin, on, ground)


def _by_rules(group: FaultRules, ground: Ground, taken: set[str]) -> Iterator[Placed]:
    names = {rule.name: None for rule in group.rules}
    if names and names.keys() <= taken:
        what = f"applied already: there are faults of the names {listed(list(names))}"
        hint = "clear those first; `lab fault show` lists them"
        raise group.source.error(group.place, what, hint=hint)
    for index, rule in enumerate(group.rules, group.first):
        where = (*group.place, index)
        if rule.name in taken:
            what = f"rule name {rule.name!r} is used twice"
            raise group.source.error((*where, "name"), what, hint="streams are keyed by it")
        taken.add(rule.name)
        hit = _hit(rule, ground.plan, group.source, where)
        origin = Origin(
            rule.name, source=group.source, place=where, key=rule.key, window=rule.window
        )
        yield from place(rule, origin, hit, ground)


# --- Where -----------------------------------------------------------------------------------


def _hit(rule: FaultRule, plan: Plan, source: Source, where: Place) -> list[Half]:
    hit: set[int] = set()
    written: Sequence[LinkPattern | str] = getattr(rule, rule.target)
    for number, pattern in enumerate(written):
        found = _matches(pattern, plan)
        if rule.target == "nics":
            found &= _at_nics(pattern, plan)
        if not found:
            what = f"pattern {str(pattern)!r} matches no {_MATCHED[rule.target]}"
            raise source.error((*where, rule.target, number), what, hint=_there_is(pattern, plan))
        hit |= found
    return [half for half in plan.halves if half[0] in hit]


_MATCHED = {"links": "link", "nodes": "node", "ports": "port", "nics": "NIC of a host"}


def _at_nics(pattern: LinkPattern | str, plan: Plan) -> set[int]:
    """The links of the hosts' ports among those that a pattern names; both directions."""
    hosts = {host.name for host in plan.hosts}
    near = {port for port in locate.ports_like(plan, str(pattern)) if port.node in hosts}
    far = locate.ports_like(plan, "*")
    return {half[0] for half in locate.joining(plan, near, far, both=True)}


def links_of(plan: Plan, pattern: str) -> tuple[int, ...]:
    """The directed links that `a->b`, `a<->b`, a node or a `node:port` chooses, globs all.

    UserError if it is no pattern, or chooses none.
    """
    arrow = "->" in pattern
    parsed = parse_link_pattern(pattern) if arrow else parse_end_pattern(pattern)
    found = _matches(parsed, plan)
    if not found:
        hint = _slip(pattern, plan) or _there_is(parsed, plan)
        raise UserError(f"{pattern!r} matches no link", hint=hint)
    return tuple(sorted(found))


def _slip(pattern: str, plan: Plan) -> str:
    """What may have been meant by a pattern that matches no link; "" if that is not known."""
    if pattern in (*EFFECTS, *BESIDE["rate"], *BESIDE["delay"], "up"):
        return f"LINK comes first, '*' for all: '*' {pattern}"
    for hyphens in re.finditer("-+", pattern):
        left, right = pattern[: hyphens.start()], pattern[hyphens.end() :]
        if locate.ports_like(plan, left) and locate.ports_like(plan, right):
            return f"'{left}<->{right}' for both directions, '{left}->{right}' for one"
    return ""


def _there_is(pattern: LinkPattern | str, plan: Plan) -> str:
    """What a pattern that matches nothing could name: links, where both its ends are nodes."""
    if isinstance(pattern, LinkPattern):
        left, right = (locate.ports_like(plan, side) for side in (pattern.left, pattern.right))
        if left and right:
            return locate.neighbours(plan, min(port.node for port in left))
    for node in plan.nodes:
        if str(pattern).startswith(f"{node.name}:"):
            return f"{node.name} has the ports {listed([port.name for port in node.ports])}"
    return f"the nodes are {listed([node.name for node in plan.nodes])}"


def _matches(pattern: LinkPattern | str, plan: Plan) -> set[int]:
    """Of a pattern of nodes or ports: all links there, in both directions."""
    if isinstance(pattern, str):
        pattern = LinkPattern(pattern, "*", both=True)
    left, right = (locate.ports_like(plan, side) for side in (pattern.left, pattern.right))
    return {half[0] for half in locate.joining(plan, left, right, both=pattern.both)}


# --- Streams ---------------------------------------------------------------------------------


def _stream(key: FaultKey, rule: str, half: Half, ground: Ground) -> int:
    """Derive the stream as `effects.Fault` defines."""
    _, sender, receiver = half
    if key == "index":
        return stream_key(ground.seed, rule, str(sender), str(receiver))
    here, there = ground.tiers[sender.node], ground.tiers[receiver.node]
    direction = "up" if here < there else "down" if here > there else "across"
    return stream_key(ground.seed, rule, min(here, there), direction)


DEFAULT_LIMIT_PACKETS = 1000  # tc-netem's


class Lowered(NamedTuple):
    effect: Effect
    filter: Filter
    place: Place


def remembers(effect: Effect) -> bool:
    """Whether it depends on the packets before; such an effect can only be keyed by `index`."""
    match effect:
        case LossModel():
            return effect.remembers
        case Reorder(gap=gap):
            return gap > 0
    return False


def lower(spec: Impairments) -> Iterator[Lowered]:
    """All effects, in the order in which they meet a packet."""
    kinds = Filter(kinds=spec.only or ())
    if spec.down:
        yield Lowered(Down(), Filter(), ("down",))
    for index, event in enumerate(spec.drop or ()):
        yield from _drop(event, kinds, ("drop", index))
    if spec.loss is not None:
        yield Lowered(spec.loss.effect, kinds, ("loss",))
    if spec.cut is not None:
        yield Lowered(Cut(threshold(spec.cut.percent)), kinds, ("cut",))
    if spec.corrupt is not None:
        yield Lowered(Corrupt(threshold(spec.corrupt.percent)), kinds, ("corrupt",))
    if spec.duplicate is not None:
        yield Lowered(Duplicate(threshold(spec.duplicate.percent)), kinds, ("duplicate",))
    if spec.reorder is not None:
        gap = spec.reorder.gap if spec.reorder.gap > 1 else 0  # as in netem, 1 leaves no gap
        out_of_turn = Reorder(threshold(spec.reorder.percent), gap, spec.reorder.by or 0)
        yield Lowered(out_of_turn, kinds, ("reorder",))
    if (rate := spec.whole_rate) is not None:
        yield Lowered(_queue(rate), Filter(), ("rate",))
    if (delay := spec.whole_delay) is not None:
        yield Lowered(_delay(delay), Filter(), ("delay",))


def _drop(event: DropEvent, kinds: Filter, place: Place) -> Iterator[Lowered]:
    iters = event.iter or ()
    if not event.named:
        wanted = Filter(
            kinds=event.only or kinds.kinds,
            opcode=event.opcode,
            qpn=event.qpn,
            absolute=event.absolute,
            message=event.message,
            tail=event.tail,
            iters=iters,
        )
        yield Lowered(Drop(), wanted, place)
    for packet in event.packet or ():
        yield Lowered(NamedDrop(event.message, packet, None, None, False, iters), Filter(), place)
    for psn in event.psn or ():
        named = NamedDrop(None, None, event.qpn, psn, event.absolute, iters)
        yield Lowered(named, Filter(), place)


def _queue(spec: QueueSpec) -> Queue:
    packets, size = spec.limit or (DEFAULT_LIMIT_PACKETS, None)
    ecn_packets, ecn_bytes = spec.ecn or (None, None)
    trims = spec.trim is not False
    trim_packets, trim_bytes = (None, None) if isinstance(spec.trim, bool) else spec.trim
    share = TRIM_SHARE if spec.trim_share is None else max(1, round(spec.trim_share * 10**6))
    return Queue(
        spec.rate, size, packets, ecn_bytes, ecn_packets, trims, trim_bytes, trim_packets, share
    )


_UET_LIMIT, _UET_ECN, _UET_TRIM, _UET_TRIM_AT_HOST = 5, 0.5, 1, 1.5
"""In bandwidth-delay products. UET 1.0 recommends a limit of 2 to 5, marks from 0.2 to 0.8, and
trimming at 1, or at 1.5 on the last hop."""
_LEAST_BDP_FRAMES = 2


def _sized(effect: Effect, spec: Impairments, half: Half, ground: Ground) -> Effect:
    """A queue with the sizes of `queue: uet` where nothing else is written."""
    rate = spec.whole_rate
    rtt_ns = ground.rtt_ns if rate is not None and rate.queue else None
    if not isinstance(effect, Queue) or rate is None or rtt_ns is None:
        return effect
    least = _LEAST_BDP_FRAMES * (ground.plan.mtu + check.ETHERNET_BYTES)
    bdp = max(rate.rate * rtt_ns // (8 * 10**9), least)
    hosts = {node.name for node in ground.plan.hosts}
    sizes: dict[str, Any] = {}
    if rate.limit is None:
        sizes |= {"limit_packets": None, "limit_bytes": _UET_LIMIT * bdp}
    if rate.ecn is None:
        sizes["ecn_bytes"] = int(_UET_ECN * bdp)
    if "trim" not in rate.model_fields_set:
        at = _UET_TRIM_AT_HOST if half[2].node in hosts else _UET_TRIM
        sizes |= {"trim": True, "trim_bytes": int(at * bdp)}
    return dataclasses.replace(effect, **sizes)


def _delay(spec: DelaySpec) -> Delay:
    return Delay(
        delay_ns=spec.delay,
        jitter_ns=spec.jitter or 0,
        distribution=spec.distribution or "uniform",
        preserve=spec.reorder == "preserve",
    )
