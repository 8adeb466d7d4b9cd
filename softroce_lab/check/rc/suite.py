# SPDX-License-Identifier: GPL-2.0-or-later
"""Reliable connections (IBA 9.7): every rule, over every connection of a capture."""

from __future__ import annotations

from collections.abc import Iterable

from softroce_lab.check import doubt
from softroce_lab.check.connections import Connection, connections
from softroce_lab.check.evidence import Evidence
from softroce_lab.check.rc import requester, responder, results
from softroce_lab.check.rc.case import Case
from softroce_lab.check.verdict import Suite, Tally, Verdict, tallies

RULES = (*requester.RULES, *responder.RULES, *results.RULES)


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
            own = anew if part.rule.of_one_life else None
            own = doubt.untimed(evidence) if part.rule.by_time else own
            tally[name].add(part, reason or (not part.rule.is_proven and missed) or own)
            tally[name].add(part.proven, reason or own)
    _note_no_statistics(evidence, tally)
    lone = sum(each.requests is None or each.answers is None for each in found)
    if lone:
        for total in tally.values():
            total.notes_that(f"{lone} of {len(found)} flows have no counterpart")
    return [each.verdict() for each in tally.values()]


def _note_no_statistics(evidence: Evidence, tally: dict[str, Tally]) -> None:
    """Where packets are missing, and the capture does not record how many it missed."""
    if any(each.dropped is None for each in evidence.capture.interfaces):
        for total in tally.values():
            if total.failures and not total.rule.is_proven:
                total.notes_that("the file does not say whether the capture missed packets")


def _try(evidence: Evidence, connection: Connection) -> dict[str, Tally]:
    tally = tallies(RULES)
    case = Case(evidence, connection, tally)
    for each in dict.fromkeys(rule.check for rule in RULES):
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
