# SPDX-License-Identifier: GPL-2.0-or-later
"""What the rules of a run do to packets behind the place where they were captured.

A link of the lab is captured where it begins: its delay, with what may overtake whom in it, lies
behind. The manifest has it as text, as `lab faults` prints it (`softroce_lab/faults/text.py`).
"""

from __future__ import annotations

import re

import numpy as np

from softroce_lab.check.evidence import Evidence, Indices, ends
from softroce_lab.units import parse_time_ns

REORDER = "reorder"
_HELD = re.compile(r"reorder .*?\bby (\S+)")  # reorder 5% by 50us
_SPREAD = re.compile(r"delay \S+ (\d\S*)( distribution)?")  # delay 100us 90us distribution normal
_FARTHEST = 4  # times the jitter is where the distributions that are not uniform are cut off


def are_known(evidence: Evidence) -> bool:
    """Whether a manifest lists its fault rules."""
    return evidence.run is not None and "faults" in evidence.run.manifest


def spread(evidence: Evidence) -> bool:
    """Whether the experiment has packets of a flow take several ways, where they overtake."""
    manifest = {} if evidence.run is None else evidence.run.manifest
    return manifest.get("experiment", {}).get("lb") in ("spray", "adaptive")


def reorder(evidence: Evidence, rows: Indices) -> bool:
    """Whether some let packets overtake each other on the links of these rows."""
    return any(REORDER in rule.split() for rule in _on(evidence, rows))


def held_back_ns(evidence: Evidence, rows: Indices) -> int:
    """How much longer than usual some keep packets on the links of these rows, at most."""
    return max((_longest_ns(rule) for rule in _on(evidence, rows)), default=0)


def dropped_by_queues(evidence: Evidence, rows: Indices) -> int:
    """How many packets the queues of these rows' links dropped, behind the capture; of one run."""
    run = evidence.run
    if run is None or run.only is None:
        return 0
    links = _links_of(evidence, rows)
    return sum(
        (link.get("wire") or {}).get("dropped_by_queue", 0)
        for link in run.links.get(str(run.only.get("run")), [])
        if ends(link["name"]) in links
    )


def _longest_ns(rule: str) -> int:
    if held := _HELD.match(rule):
        return parse_time_ns(held[1])
    if spread := _SPREAD.match(rule):
        return parse_time_ns(spread[1]) * (_FARTHEST if spread[2] else 1)
    return 0


def _links_of(evidence: Evidence, rows: Indices) -> set[tuple[str, str]]:
    """Where these rows were captured, as nodes."""
    names = evidence.interface_names()
    numbers = np.unique(evidence.packets["interface"][rows]).tolist()
    return {ends(names[number]) for number in numbers if number in names}


def _on(evidence: Evidence, rows: Indices) -> list[str]:
    """All rules on these links."""
    links = _links_of(evidence, rows)
    faults = [] if evidence.run is None else evidence.run.manifest.get("faults", [])
    return [
        str(each.get("fault", ""))
        for each in faults
        if any(ends(link) in links for link in each.get("links", []))
    ]
