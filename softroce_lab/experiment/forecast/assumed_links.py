# SPDX-License-Identifier: GPL-2.0-or-later
"""What the virtual clock takes links for where nothing shapes any: else no time would pass."""

from __future__ import annotations

from softroce_lab.faults.model import FaultRule
from softroce_lab.faults.resolve import FaultRules, arm
from softroce_lab.plan.plan import Plan

RATE, DELAY = "10Gbit", "5us"
"""Of every link."""

_RULE = FaultRule.model_validate(
    {"name": "assumed-links", "links": "*<->*", "rate": RATE, "delay": DELAY}
)


def shaped(plan: Plan) -> Plan:
    """The plan itself if any link has a rate or a delay, at any time; else all have these."""
    if any(fault.word in ("rate", "delay") for fault in plan.faults):
        return plan
    return arm(plan, FaultRules((_RULE,)))


def note(plan: Plan) -> list[str]:
    """The warning for the user if the plan was changed so."""
    if not any(fault.rule == _RULE.name for fault in plan.faults):
        return []
    return [f"no link has a rate or a delay: all are taken to have {RATE} and {DELAY}"]
