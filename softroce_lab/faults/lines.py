# SPDX-License-Identifier: GPL-2.0-or-later
"""The faults of a directed link as lines to read: the packets that one rule names, in one line."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from softroce_lab import units
from softroce_lab.faults.check import ETHERNET_BYTES
from softroce_lab.faults.text import (
    effect_text,
    filter_text,
    rate_text,
    spans,
    text,
    window_text,
)
from softroce_lab.inputs.validation import listed
from softroce_lab.plan.effects import (
    Delay,
    Effect,
    Fault,
    LossModel,
    NamedDrop,
    Queue,
    Reorder,
    Window,
)
from softroce_lab.plan.locate import link_names
from softroce_lab.plan.plan import Plan

_MOST_SPANS = 6  # of packets in a row that a line lists
_MOST_NAMES = 3  # of messages or queue pairs
_MOST_LINKS = 6


def grouped(faults: Iterable[Fault]) -> list[tuple[Fault, ...]]:
    """Faults that belong in one line: named packets of one rule on one link; others alone."""
    found: dict[tuple[object, ...], list[Fault]] = {}
    for fault in faults:
        named = isinstance(fault.effect, NamedDrop)
        own = (fault.filter, fault.window) if named else (fault.rule_id,)
        found.setdefault((fault.directed_link, fault.rule, named, *own), []).append(fault)
    return [tuple(group) for group in found.values()]


def line(group: Sequence[Fault]) -> str:
    """`drop 40 packets: message 0 packet 3-42 iter 1`, or the text of a single fault."""
    first = group[0]
    if len(group) == 1:
        return text(first)
    named = [fault.effect for fault in group if isinstance(fault.effect, NamedDrop)]
    what = f"drop {len(named)} packets: {_names(named)}"
    parts = (what, filter_text(first.filter), window_text(first.window))
    return " ".join(part for part in parts if part)


def _names(named: Sequence[NamedDrop]) -> str:
    alike: dict[NamedDrop, list[int]] = collections.defaultdict(list)
    for each in named:
        number = each.packet if each.psn is None else each.psn
        alike[dataclasses.replace(each, packet=None, psn=None)].append(number or 0)
    shown = [_name(owner, numbers) for owner, numbers in list(alike.items())[:_MOST_NAMES]]
    left = sum(len(numbers) for numbers in list(alike.values())[_MOST_NAMES:])
    return "; ".join([*shown, f"{left} more"] if left else shown)


def _name(owner: NamedDrop, numbers: Sequence[int]) -> str:
    """`message 0 packet 3-42,50 iter 1`."""
    rows = spans(sorted(numbers)).split(",")
    shown = ",".join(rows[:_MOST_SPANS] + (["..."] if len(rows) > _MOST_SPANS else []))
    where = f"message {owner.message} packet" if owner.qpn is None else f"qpn {owner.qpn} psn"
    iters = f" iter {spans(owner.iters)}" if owner.iters else ""
    return f"{where} {shown}{iters}{' absolute' if owner.absolute else ''}"


def moment(window: Window, now_ns: int | None) -> str:
    """`acts now`, `acts in 1.2 s` or `over`; nothing to say of what always acts, or of no time."""
    if now_ns is None or window.always:
        return ""
    change_ns = window.next_change_ns(now_ns)
    if window.acts(now_ns):
        return "acts now"
    return "over" if change_ns is None else f"acts in {units.format_duration(change_ns - now_ns)}"


def texts(faults: Iterable[Fault], now_ns: int | None = None) -> tuple[str, ...]:
    """The faults of a directed link, one text a line, and how they are at a moment."""
    pairs = [(line(group), moment(group[0].window, now_ns)) for group in grouped(faults)]
    return tuple(f"{what} ({how})" if how else what for what, how in pairs)


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    name: str
    key: str
    text: str
    directed_links: tuple[int, ...]

    def on(self, plan: Plan) -> str:
        """`loss random 1%  (grey) on leaf1->spine1`."""
        links = listed(link_names(plan, self.directed_links), _MOST_LINKS)
        return f"{self.text}  ({self.name}) on {links}"


def rules(faults: Iterable[Fault]) -> list[Rule]:
    found: dict[tuple[str, str, str], list[int]] = collections.defaultdict(list)
    for group in grouped(faults):
        first = group[0]
        found[first.rule, first.key, line(group)].append(first.directed_link)
    return [Rule(*what, tuple(links)) for what, links in found.items()]


_NO_TRIMMING = "nothing in tc trims packets"
_NETEM_ORDER = ("delay", "loss", "corrupt", "duplicate", "reorder")


def commands(faults: Iterable[Fault], interface: str, mtu: int) -> list[str]:
    """Commands for the transmitting interface; a line with `#` names what tc does otherwise."""
    chosen: dict[str, Fault] = {}
    notes: list[str] = []
    for group in grouped(faults):
        fault = group[0]
        if (why := _beyond(fault)) is not None:
            notes.append(f"# {line(group)}: {why}")
        elif fault.word in chosen:
            notes.append(f"# {text(fault)}: one netem takes one {fault.word} only")
        else:
            chosen[fault.word] = fault
            notes += [f"# {effect_text(fault.effect)}: {note}" for note in _notes(fault)]
    return [*_tc_lines(chosen, interface, mtu), *notes]


def _tc_lines(chosen: dict[str, Fault], interface: str, mtu: int) -> Iterator[str]:
    if "down" in chosen:
        yield f"ip link set dev {interface} down"
    words = [_netem(chosen[word].effect) for word in _NETEM_ORDER if word in chosen]
    if words:
        yield f"tc qdisc add dev {interface} root handle 1: netem {' '.join(words)}"
    if "rate" in chosen:
        place = "parent 1:1" if words else "root"
        queue = chosen["rate"].effect
        assert isinstance(queue, Queue)  # noqa: S101 - what the word means
        yield f"tc qdisc add dev {interface} {place} handle 2: tbf {_tbf(queue, mtu)}"


def _beyond(fault: Fault) -> str | None:
    if fault.word == "drop":
        return "tc cannot name packets of RoCE"
    if fault.word == "cut":
        return _NO_TRIMMING
    if not fault.filter.everything:
        return "netem takes all packets alike, whatever they carry"
    if not fault.window.always:
        return "tc has no timeline; add the qdisc then, and delete it"
    if isinstance(fault.effect, Reorder) and fault.effect.extra_ns:
        return "netem's packets skip the delay; it holds none back"
    if isinstance(fault.effect, LossModel) and fault.effect.netem_words is None:
        return fault.effect.netem or "netem has none"
    return None


def _notes(fault: Fault) -> Iterator[str]:
    match fault.effect:
        case LossModel(netem=str(note)):
            yield note
        case Delay(jitter_ns=jitter, preserve=True) if jitter:
            yield "netem lets packets overtake each other"
        case Delay(delay_ns=delay, jitter_ns=jitter) if jitter > delay:
            yield "below nothing is nothing"
        case Queue() as queue:
            if queue.ecn_bytes is not None or queue.ecn_packets is not None:
                yield "tbf marks nothing; red does, by a moving average"
            if queue.trim:
                yield _NO_TRIMMING


def _netem(effect: Effect) -> str:
    match effect:
        case LossModel(netem_words=str(words)):
            return words
        case Delay():
            return effect_text(dataclasses.replace(effect, preserve=True))
    return effect_text(effect)


def _tbf(queue: Queue, mtu: int) -> str:
    """With a bucket of one frame: the lab's transmitter sends one after the other."""
    frame = mtu + ETHERNET_BYTES
    limit = queue.limit_bytes
    if limit is None:
        limit = (queue.limit_packets or 0) * frame
    return f"rate {rate_text(queue.rate_bps)} burst {frame} limit {max(limit, frame)}"
