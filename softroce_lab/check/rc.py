# SPDX-License-Identifier: GPL-2.0-or-later
"""Reliable connections (IBA 9.7): every rule, over every connection of a capture."""

from __future__ import annotations

from collections.abc import Iterable

from softroce_lab.check import (
    doubt,
    rc_messages,
    rc_msn,
    rc_psns,
    rc_requester,
    rc_responder,
    rc_results,
)
from softroce_lab.check.connections import Connection, connections
from softroce_lab.check.evidence import Evidence
from softroce_lab.check.rc_case import Case
from softroce_lab.check.verdict import Suite, Tally, Verdict, tallies

RULES = (
    rc_psns.CONTINUITY,
    rc_messages.OPCODES,
    rc_messages.LENGTHS,
    rc_messages.AGAIN,
    rc_requester.GO_BACK,
    rc_requester.RETRIES,
    rc_requester.RNR,
    rc_requester.CREDIT,
    rc_responder.NAK_ONCE,
    rc_responder.NAK_NAMES,
    rc_responder.NAK_FOR,
    rc_responder.ACK_ORDER,
    rc_psns.SENT,
    rc_psns.IN_ORDER,
    rc_responder.DUPLICATES,
    rc_responder.FINAL,
    rc_msn.MONOTONIC,
    rc_msn.RIGHT,
    rc_results.SEQUENCE,
    rc_results.COMPLETE,
    rc_results.KIND,
    rc_results.ATOMIC,
    rc_psns.UNSEEN,
)
_CHECKS = (
    rc_messages.check_opcodes,
    rc_messages.check_lengths,
    rc_messages.check_again,
    rc_requester.check_go_back,
    rc_requester.check_retries,
    rc_requester.check_rnr,
    rc_requester.check_credits,
    rc_responder.check_naks,
    rc_responder.check_gaps,
    rc_responder.check_order,
    rc_responder.check_duplicates,
    rc_responder.check_final,
    rc_msn.check,
    rc_results.check_kinds,
    rc_results.check_sequence,
    rc_results.check_complete,
    rc_results.check_atomics,
)


# Rules whose violations are proven by the packets that are there, whatever else was missed.
_PROVEN = frozenset(
    ("opcode-sequence", "length", "resend-same", "ack-order", "msn-monotonic", "atomic-once",
     "rnr-wait", "unseen", rc_psns.OVERLAPS)
)  # fmt: skip


def check(evidence: Evidence) -> Iterable[Verdict]:
    """All rules of RC, and the capture's own losses as far as acknowledgements tell of them."""
    tally = tallies(RULES)
    found = connections(evidence)
    tried = [(each, _try(evidence, each)) for each in found]
    lossy = doubt.missed(evidence) or _unseen(each for _, each in tried)
    for connection, each in tried:
        reason = _doubt(evidence, connection)
        missed = lossy or _behind(each)
        for name, part in each.items():
            untimed = doubt.untimed(evidence) if name == "rnr-wait" else None
            tally[part.rule.short].add(part, reason or (name not in _PROVEN and missed) or untimed)
    _note_no_statistics(evidence, tally)
    lone = sum(each.requests is None or each.answers is None for each in found)
    if lone:
        for total in tally.values():
            total.notes_that(f"{lone} of {len(found)} flows have no counterpart")
    return [each.verdict() for each in tally.values()]


def _note_no_statistics(evidence: Evidence, tally: dict[str, Tally]) -> None:
    """Where packets are not there, and nothing says how many the capture missed."""
    if any(each.dropped is None for each in evidence.capture.interfaces):
        for name, total in tally.items():
            if name not in _PROVEN and total.violations:
                total.notes_that("the file does not say whether the capture missed packets")


def _try(evidence: Evidence, connection: Connection) -> dict[str, Tally]:
    tally = tallies(RULES) | {rc_psns.OVERLAPS: Tally(rc_psns.CONTINUITY)}
    case = Case(evidence, connection, tally)
    rc_psns.check_continuity(case, tally["unseen"])
    rc_psns.check_answers(case, tally["unseen"])
    for each in _CHECKS:
        each(case)
    return tally


def _unseen(tried: Iterable[dict[str, Tally]]) -> str | None:
    """The responders acknowledged what is not there, so that other packets may be missing, too."""
    if any(each["unseen"].violations for each in tried):
        return "the capture missed packets (integrity.unseen)"
    return None


def _behind(tried: dict[str, Tally]) -> str | None:
    """What the capture has begins with what was sent, and acknowledged, before it."""
    return "the capture begins in mid-connection" if tried["unseen"].undecided else None


def _doubt(evidence: Evidence, connection: Connection) -> str | None:
    """Why nothing is proven of this connection."""
    both = [each for each in (connection.requests, connection.answers) if each is not None]
    return next(filter(None, (doubt.of_flow(evidence, each) for each in both)), None)


SUITE = Suite(RULES, check)
