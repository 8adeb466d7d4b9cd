# SPDX-License-Identifier: GPL-2.0-or-later
"""The checkers of the lab's own transports, over one view of the capture."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from softroce_lab.check.evidence import Evidence
from softroce_lab.check.striped import (
    csa_ud,
    exactly_once,
    path_numbers,
    recovery_time,
    selective_repeat,
)
from softroce_lab.check.striped.controls import Controls
from softroce_lab.check.striped.losses import Losses
from softroce_lab.check.striped.messages import Striped
from softroce_lab.check.verdict import Suite, Verdict


@dataclasses.dataclass(frozen=True)
class Understood:
    """A capture as the checkers of striped messages see it."""

    view: Striped
    controls: Controls
    losses: Losses

    @classmethod
    def of(cls, evidence: Evidence) -> Understood:
        """Made once for all of them."""
        kept = evidence.kept.get(__name__)
        if isinstance(kept, cls):
            return kept
        view = Striped(evidence)
        controls = Controls(view)
        understood = cls(view, controls, Losses(view, controls))
        evidence.kept[__name__] = understood
        return understood


def check(evidence: Evidence) -> Iterator[Verdict]:
    """All of them."""
    lab = Understood.of(evidence)
    yield from selective_repeat.check(lab.view, lab.controls, lab.losses)
    yield from csa_ud.check(lab.view, lab.controls, lab.losses)
    yield from path_numbers.check(lab.view, lab.controls)
    yield from exactly_once.check(lab.view, lab.controls)
    yield from recovery_time.check(lab.view, lab.controls, lab.losses)


def figures(evidence: Evidence) -> dict[str, dict[str, dict[str, int]]]:
    """Recovery times by transport and step: for JSON."""
    lab = Understood.of(evidence)
    times = recovery_time.measure(lab.view, lab.controls, lab.losses)
    return {
        transport: {step: dataclasses.asdict(each) for step, each in steps.items()}
        for transport, steps in times.items()
    }


SUITE = Suite(
    rules=(
        *selective_repeat.RULES,
        *csa_ud.RULES,
        *path_numbers.RULES,
        *exactly_once.RULES,
        *recovery_time.RULES,
    ),
    check=check,
    of="lab",
)
