# SPDX-License-Identifier: GPL-2.0-or-later
"""The invariant CRC of every packet that was captured whole (IBA 7.8.1, annex A17.3.2)."""

from __future__ import annotations

import numpy as np

from softroce_lab import _native
from softroce_lab.check.evidence import Evidence
from softroce_lab.check.verdict import MOST_EXHIBITS, Rules, Suite, Tally
from softroce_lab.telemetry.packets import Has, Kind

RULES = Rules()


@RULES.rule(
    "icrc.right",
    "the last four bytes of every packet are its ICRC",
    "IBA 7.8.1, annex A17.3.2",
)
def check(evidence: Evidence, tally: Tally) -> None:
    """Every packet."""
    has = evidence.packets["has"]
    is_roce = evidence.packets["kind"] == Kind.ROCE
    wrong = np.flatnonzero(is_roce & evidence.is_broken)
    tally.passed(int(np.count_nonzero(is_roce & (has & Has.ICRC_GOOD != 0))))
    if len(wrong) and evidence.rules_of_the_run("corrupt"):
        tally.doubts("a rule of the run flips bits on a link before", len(wrong))
        wrong = wrong[:0]
    for row in wrong[:MOST_EXHIBITS].tolist():
        tally.failed([evidence.packets["number"][row]], _difference(evidence, row))
    if len(wrong) > MOST_EXHIBITS:
        more = len(wrong) - MOST_EXHIBITS
        tally.failed((), "", more)
    unknown = int(np.count_nonzero(is_roce & (has & Has.ICRC_CHECKED == 0)))
    if unknown:
        tally.doubts("the snap length cut the ICRC off", unknown)


def _difference(evidence: Evidence, row: int) -> str:
    packet = evidence.packets[row]
    text = f"the ICRC is {int(packet['icrc']):#010x}"
    try:
        due = _native.icrc(evidence.capture.frame(int(packet["number"])))
    except ValueError:
        return text
    return f"{text}; of these bytes it is {due:#010x}"


SUITE = Suite.of_evidence(RULES)
