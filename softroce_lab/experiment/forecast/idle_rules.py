# SPDX-License-Identifier: GPL-2.0-or-later
"""Idle rules: fault rules that matched no packet of a run, which says nothing about their effect.

Either the run ended before the time of the rule, or no packet took its links.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from softroce_lab.faults.layout import Hits
from softroce_lab.inputs.validation import listed
from softroce_lab.plan import locate
from softroce_lab.plan.effects import Fault
from softroce_lab.plan.plan import Plan

_MOST_LINKS = 4  # that a note names


def find(
    faults: Sequence[Fault],
    hits: Mapping[int, Iterable[Hits]],
    busy: Container[int],
    lasted_ns: int,
) -> list[str]:
    """The names of the idle rules. `busy`: the directed links that packets took."""
    hit = {each.rule_id for found in hits.values() for each in found if each.hits}
    acted = set[str]()
    for fault in faults:  # of a large fabric many thousands, of few rules
        if fault.rule in acted:
            continue
        if fault.rule_id in hit or _shaped(fault, busy, lasted_ns):
            acted.add(fault.rule)
    return [rule for rule in dict.fromkeys(fault.rule for fault in faults) if rule not in acted]


def _shaped(fault: Fault, busy: Container[int], lasted_ns: int) -> bool:
    return fault.shapes and fault.directed_link in busy and fault.window.begin_ns < lasted_ns


def find_in_all(runs: Sequence[Sequence[str]]) -> list[str]:
    return [rule for rule in (runs[0] if runs else ()) if all(rule in others for others in runs)]


def notes(
    rules: Sequence[str], plan: Plan, runs: Iterable[Iterable[Mapping[str, Any]]]
) -> list[str]:
    busy = {
        link["directed_link"]
        for links in runs
        for link in links
        if link["sent"] or link["injected_drops"]
    }
    found, names = [], locate.arrows(plan)
    on = {rule: {f.directed_link for f in plan.faults if f.rule == rule} for rule in rules}
    met = [rule for rule in rules if on[rule] & busy]
    if met:
        found.append(f"did nothing: {', '.join(met)}: no packet met it in its time")
    for rule in (rule for rule in rules if rule not in met):
        where = listed([names[link] for link in sorted(on[rule])], _MOST_LINKS)
        found.append(
            f"did nothing: {rule}: no flow took {where}; lab inspect path A B shows the paths"
        )
    return found
