# SPDX-License-Identifier: GPL-2.0-or-later
"""The faults of a directed link as lines to read: the packets that one rule names, in one line."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Sequence

from softroce_lab import units
from softroce_lab.faults.text import filter_text, spans, text, window_text
from softroce_lab.inputs.validation import listed
from softroce_lab.plan.effects import Fault, NamedDrop, Window
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
    """The packets by message or queue pair, the first few of them."""
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
    """What one rule does alike on some links."""

    name: str
    key: str
    text: str
    directed_links: tuple[int, ...]

    def on(self, plan: Plan) -> str:
        """`loss random 1%  (grey) on leaf1->spine1`."""
        links = listed(link_names(plan, self.directed_links), _MOST_LINKS)
        return f"{self.text}  ({self.name}) on {links}"


def rules(faults: Iterable[Fault]) -> list[Rule]:
    """The faults by rule and text, in their order."""
    found: dict[tuple[str, str, str], list[int]] = collections.defaultdict(list)
    for group in grouped(faults):
        first = group[0]
        found[first.rule, first.key, line(group)].append(first.directed_link)
    return [Rule(*what, tuple(links)) for what, links in found.items()]
