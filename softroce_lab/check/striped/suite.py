# SPDX-License-Identifier: GPL-2.0-or-later
"""The checkers of the lab's own transports, over one view of the capture."""

from __future__ import annotations

import dataclasses

from softroce_lab.check.evidence import Evidence
from softroce_lab.check.striped import (
    csa_ud,
    exactly_once,
    losses,
    parity,
    selective_repeat,
    sending,
)
from softroce_lab.check.striped.losses import understood
from softroce_lab.check.verdict import Suite, verdicts


def figures(evidence: Evidence) -> dict[str, dict[str, dict[str, int]]]:
    """Recovery times by transport and step: for JSON."""
    times = losses.measure(understood(evidence))
    return {
        transport: {step: dataclasses.asdict(each) for step, each in steps.items()}
        for transport, steps in times.items()
    }


_RULES = (
    *selective_repeat.RULES,
    *sending.RULES,
    *csa_ud.RULES,
    *parity.RULES,
    *exactly_once.RULES,
    *losses.RULES,
)
SUITE = Suite(_RULES, check=lambda evidence: verdicts(_RULES, understood(evidence)), of="lab")
