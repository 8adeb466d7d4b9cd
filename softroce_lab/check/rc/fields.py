# SPDX-License-Identifier: GPL-2.0-or-later
"""What one packet proves by itself: reserved values, and a P_Key that differs from the others."""

from __future__ import annotations

import numpy as np

from softroce_lab.check.evidence import Evidence, Indices
from softroce_lab.check.opcodes import ACK, KINDS, NAK, NAK_CODES
from softroce_lab.check.rc.case import Case, named
from softroce_lab.check.verdict import Rules, Tally
from softroce_lab.telemetry.packets import Has

RULES = Rules()
ONE_PKEY = ("all packets of one direction carry the same P_Key", "IBA 9.2, 10.9")


@RULES.rule(
    "rc.syndrome",
    "an AETH carries a defined syndrome and NAK code, that of a result an ACK",
    "IBA 9.7.5.2.1",
    is_proven=True,
)
def check_syndromes(case: Case) -> None:
    """Every AETH: the kind in the upper three bits, the code of a NAK in the lower five."""
    answers, tally = case.near_responder.answers, case.tally["syndrome"]
    reported = np.flatnonzero(answers.has_aeth)
    kind, code = answers.syndrome[reported] >> 5, answers.syndrome[reported] & 31
    reserved = ~np.isin(kind, KINDS) | ((kind == NAK) & (code >= len(NAK_CODES)))
    wrong = reserved | (answers.is_result[reported] & (kind != ACK))
    tally.passed(int(np.count_nonzero(~wrong)))
    for at in reported[wrong].tolist():
        syndrome, psn = int(answers.syndrome[at]), int(answers.psn[at])
        what = "a result" if answers.is_result[at] else "an acknowledgement"
        tally.failed([answers.number[at]], f"syndrome {syndrome:#04x} in {what} of {named(psn)}")


@RULES.rule("rc.pkey", *ONE_PKEY, is_proven=True)
def check_pkeys(case: Case) -> None:
    """Both directions, each by itself."""
    check_one_pkey(case.evidence, case.near_requester.requests.rows, case.tally["pkey"])
    check_one_pkey(case.evidence, case.near_responder.answers.rows, case.tally["pkey"])


def check_one_pkey(evidence: Evidence, rows: Indices, tally: Tally) -> None:
    """Rows of one direction: the P_Key of most of them is that of all."""
    if not len(rows):
        return
    pkeys = evidence.packets["pkey"][rows]
    values, counts = np.unique(pkeys, return_counts=True)
    usual = values[counts.argmax()]
    odd = rows[pkeys != usual]
    tally.passed(len(rows) - len(odd))
    proven = evidence.packets["has"][odd] & Has.ICRC_GOOD != 0
    tally.doubts("bits may have flipped: the ICRC is not known", int(np.count_nonzero(~proven)))
    for row in odd[proven].tolist():
        packet = evidence.packets[row]
        text = f"P_Key {packet['pkey']:#06x} in PSN {packet['psn']}, {usual:#06x} in the others"
        tally.failed([packet["number"]], text)
