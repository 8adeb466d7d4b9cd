# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules that did nothing in a run, which says nothing about what they would have done.

Their time came after the run was over, or no packet took their links.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from softroce_lab.faults.layout import Hits
from softroce_lab.plan.effects import Fault


def of_run(
    faults: Sequence[Fault],
    hits: Mapping[int, Iterable[Hits]],
    busy: Container[int],
    lasted_ns: int,
) -> list[str]:
    """The rules that hit no packet, and shaped no link that one took.

    `hits` by directed link; `busy`: the directed links that a packet took. Of what shapes a link is
    known only whether its time began before the run's end, `lasted_ns` behind the timeline's begin.
    """
    hit = {each.rule_id for found in hits.values() for each in found if each.hits}
    acted = {
        fault.rule for fault in faults if fault.rule_id in hit or _shaped(fault, busy, lasted_ns)
    }
    return [rule for rule in dict.fromkeys(fault.rule for fault in faults) if rule not in acted]


def _shaped(fault: Fault, busy: Container[int], lasted_ns: int) -> bool:
    return fault.shapes and fault.directed_link in busy and fault.window.begin_ns < lasted_ns


def of_all(runs: Sequence[Sequence[str]]) -> list[str]:
    """Those that did nothing in any of the runs."""
    return [rule for rule in (runs[0] if runs else ()) if all(rule in others for others in runs)]


def note(rules: Sequence[str]) -> list[str]:
    """A sentence for the user; none if there are no such rules."""
    return [f"did nothing: {', '.join(rules)}: no packet met it in its time"] if rules else []
