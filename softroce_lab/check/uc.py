# SPDX-License-Identifier: GPL-2.0-or-later
"""Unreliable connections (IBA 9.8.2): in order, once, without acknowledgements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from softroce_lab.check import doubt, opcodes
from softroce_lab.check.connections import Agreed, Connection, successive
from softroce_lab.check.evidence import DUPLICATED, Evidence
from softroce_lab.check.flows import Flow, flows
from softroce_lab.check.rc.case import named, ranged
from softroce_lab.check.rc.packets import Requests, path_mtu, requests_of
from softroce_lab.check.rc.requester import (
    check_message_lengths,
    check_packet_lengths,
    check_sequence,
)
from softroce_lab.check.rc.results import ONE_PKEY, check_one_pkey
from softroce_lab.check.verdict import Rules, Suite, Tally, Verdict

RULES = Rules()


class _Part(NamedTuple):
    """What a flow of UC sent between two changes of its connection."""

    evidence: Evidence
    flow: Flow
    is_first: bool  # of the flow's parts
    of_rc: Flow | None  # to the same queue pair
    requests: Requests
    mtu: int


def check(evidence: Evidence) -> list[Verdict]:
    """Every flow of UC."""
    total = [Tally(rule) for rule in RULES]
    for part in _parts(evidence):
        reason = doubt.of_flow(evidence, part.flow)
        for tally in total:
            tried = Tally(tally.rule)
            tally.rule.check(part, tried)
            tally.add(tried, None if tally.rule.is_proven else reason)
    return [each.verdict() for each in total]


def _parts(evidence: Evidence) -> Iterator[_Part]:
    reliable = {
        (flow.destination, flow.qp): flow for flow in flows(evidence) if flow.service == opcodes.RC
    }
    for flow in flows(evidence):
        if flow.service != opcodes.UC:
            continue
        of_rc = reliable.get((flow.destination, flow.qp))
        parts = successive(evidence, Connection(flow, None, Agreed()))
        for number, part in enumerate(parts):
            place = evidence.place_in_time[flow.sent]
            rows = flow.sent[(place >= part.since) & (place < part.until)]
            mtu = path_mtu(evidence, rows)
            requests = requests_of(evidence, rows, mtu)
            yield _Part(evidence, flow, number == 0, of_rc, requests, mtu)


@RULES.rule(
    "uc.psn-continuity",
    "packets have successive PSNs",
    "IBA 9.8.2.1",
)
def _check_psns(part: _Part, tally: Tally) -> None:
    requests = part.requests
    jumps = np.flatnonzero(requests.psn != requests.top)
    tally.passed(len(requests) - len(jumps))
    for at in jumps.tolist():
        if not part.flow.at_sender:
            tally.doubts("lost or overtaken before the capture, or skipped (--at)")
            continue
        psn, due = int(requests.psn[at]), int(requests.top[at])
        text = (
            f"{ranged(due, psn)} skipped" if psn > due else f"{named(psn)} after {named(due - 1)}"
        )
        tally.failed([requests.number[at]], text)


@RULES.rule(
    "uc.once",
    "no PSN is given to two packets: UC never sends again",
    "IBA 9.8.2.1",
)
def _check_once(part: _Part, tally: Tally) -> None:
    evidence, requests = part.evidence, part.requests
    order = np.lexsort((requests.place, requests.psn))
    same = np.flatnonzero(np.diff(requests.psn[order]) == 0)
    copied = evidence.commented(DUPLICATED)
    # On the sender's link comments mark packets that are copies; those of other links have none.
    may_be_copies = not part.flow.at_sender and evidence.rules_of_the_run("duplicate")
    tally.passed(len(requests) - len(same))
    for at in same.tolist():
        one, other = order[at], order[at + 1]
        if copied[requests.rows[one]]:
            continue
        if may_be_copies:
            tally.doubts("a rule duplicates packets on links that were not captured")
            continue
        tally.failed(
            (requests.number[one], requests.number[other]),
            f"{named(int(requests.psn[one]))} twice",
        )


@RULES.rule(
    "uc.opcode-sequence",
    "First, Middle and Last of one operation follow each other; only a Last or an Only ends",
    "IBA 9.8.2.2",
)
def _check_sequence(part: _Part, tally: Tally) -> None:
    check_sequence(part.requests, tally)


@RULES.rule(
    "uc.length",
    "First and Middle packets are as long as the path MTU, Last and Only not longer, and a WRITE's "
    "add up to its RETH's DMA length",
    "IBA 9.8.2.2",
)
def _check_lengths(part: _Part, tally: Tally) -> None:
    check_packet_lengths(part.requests, part.mtu, tally)
    check_message_lengths(part.requests, tally)


@RULES.rule(
    "uc.no-answers",
    "a queue pair of UC gets no acknowledgements and no NAKs",
    "IBA 9.8.2",
    is_proven=True,
)
def _check_silence(part: _Part, tally: Tally) -> None:
    """Queue pairs of UC that something of RC was addressed to."""
    if not part.is_first:
        return
    if part.of_rc is None:
        tally.passed()
        return
    first = part.evidence.packets["number"][[part.flow.sent[0], part.of_rc.sent[0]]]
    tally.failed(first.tolist(), f"queue pair {part.flow.qp} is addressed by UC and by RC")


@RULES.rule("uc.pkey", *ONE_PKEY)
def _check_pkeys(part: _Part, tally: Tally) -> None:
    check_one_pkey(part.evidence, part.requests.rows, tally)


SUITE = Suite(RULES, check)
