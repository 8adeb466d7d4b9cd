# SPDX-License-Identifier: GPL-2.0-or-later
"""Reliable connections (IBA 9.7): every rule, over every connection of a capture."""

from __future__ import annotations

from collections.abc import Iterable

from softroce_lab.check import doubt
from softroce_lab.check.connections import Connection, connections
from softroce_lab.check.evidence import Evidence
from softroce_lab.check.rc import fields, messages, msn, psns, requester, responder, results
from softroce_lab.check.rc.case import Case
from softroce_lab.check.verdict import Suite, Tally, Verdict, tallies

RULES = (
    psns.CONTINUITY,
    messages.OPCODES,
    messages.LENGTHS,
    messages.AGAIN,
    requester.GO_BACK,
    requester.RETRIES,
    requester.RNR,
    requester.CREDIT,
    responder.NAK_ONCE,
    responder.NAK_NAMES,
    responder.NAK_FOR,
    responder.ACK_ORDER,
    psns.SENT,
    psns.IN_ORDER,
    responder.DUPLICATES,
    responder.FINAL,
    msn.MONOTONIC,
    msn.RIGHT,
    results.SEQUENCE,
    results.COMPLETE,
    results.KIND,
    results.ATOMIC,
    fields.SYNDROME,
    fields.PKEY,
    psns.UNSEEN,
)
_CHECKS = (
    messages.check_opcodes,
    messages.check_lengths,
    messages.check_again,
    requester.check_go_back,
    requester.check_retries,
    requester.check_rnr,
    requester.check_credits,
    responder.check_naks,
    responder.check_gaps,
    responder.check_order,
    responder.check_duplicates,
    responder.check_final,
    msn.check,
    results.check_kinds,
    results.check_sequence,
    results.check_complete,
    results.check_atomics,
    fields.check_syndromes,
    fields.check_pkeys,
)


# Parts of a rule that are proven so, by a name of their own.
_PARTS = {
    psns.OVERLAPS: psns.CONTINUITY,
    responder.REPEATED: responder.NAK_ONCE,
    results.CUT: results.SEQUENCE,
}
# Rules whose violations are proven by the packets that are there, whatever else was missed.
_PROVEN = frozenset(
    ("opcode-sequence", "length", "retransmit-same", "ack-order", "msn-monotonic", "atomic-once",
     "rnr-wait", "error-is-final", "syndrome", "pkey", "unseen", *_PARTS)
)  # fmt: skip

# Rules that count over the life of a queue pair.
_OF_ONE_LIFE = frozenset(("retry-limit", "msn-monotonic", "msn-right"))


def check(evidence: Evidence) -> Iterable[Verdict]:
    """All rules of RC, and the capture's own losses as far as acknowledgements reveal them."""
    tally = tallies(RULES)
    found = connections(evidence)
    tried = [(each, _try(evidence, each)) for each in found]
    lossy = doubt.missed(evidence) or _unseen(each for _, each in tried)
    for connection, each in tried:
        reason = _doubt(evidence, connection)
        missed = lossy or _behind(each)
        anew = doubt.begins_anew(evidence, connection.requests)
        for name, part in each.items():
            own = anew if name in _OF_ONE_LIFE else None
            own = doubt.untimed(evidence) if name == "rnr-wait" else own
            tally[part.rule.short].add(part, reason or (name not in _PROVEN and missed) or own)
    _note_no_statistics(evidence, tally)
    lone = sum(each.requests is None or each.answers is None for each in found)
    if lone:
        for total in tally.values():
            total.notes_that(f"{lone} of {len(found)} flows have no counterpart")
    return [each.verdict() for each in tally.values()]


def _note_no_statistics(evidence: Evidence, tally: dict[str, Tally]) -> None:
    """Where packets are missing, and the capture does not record how many it missed."""
    if any(each.dropped is None for each in evidence.capture.interfaces):
        for name, total in tally.items():
            if name not in _PROVEN and total.failures:
                total.notes_that("the file does not say whether the capture missed packets")


def _try(evidence: Evidence, connection: Connection) -> dict[str, Tally]:
    tally = tallies(RULES) | {part: Tally(rule) for part, rule in _PARTS.items()}
    case = Case(evidence, connection, tally)
    psns.check_continuity(case, tally["unseen"])
    psns.check_answers(case, tally["unseen"])
    for each in _CHECKS:
        each(case)
    return tally


def _unseen(tried: Iterable[dict[str, Tally]]) -> str | None:
    """The responders acknowledged what is not there, so that other packets may be missing, too."""
    if any(each["unseen"].failures for each in tried):
        return "the capture missed packets (integrity.unseen)"
    return None


def _behind(tried: dict[str, Tally]) -> str | None:
    """What the capture has begins with what was sent, and acknowledged, before it."""
    return "the capture begins in mid-connection" if tried["unseen"].inconclusive else None


def _doubt(evidence: Evidence, connection: Connection) -> str | None:
    """Why nothing is proven of this connection."""
    both = [each for each in (connection.requests, connection.answers) if each is not None]
    return next(filter(None, (doubt.of_flow(evidence, each) for each in both)), None)


SUITE = Suite(RULES, check)
