# SPDX-License-Identifier: GPL-2.0-or-later
"""Unreliable connections (IBA 9.8.2): in order, once, without acknowledgements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from softroce_lab.check import doubt, opcodes
from softroce_lab.check.connections import Agreed, Connection, successive
from softroce_lab.check.evidence import DUPLICATED, Evidence
from softroce_lab.check.flows import flows
from softroce_lab.check.rc import messages as rc_messages
from softroce_lab.check.rc.case import named, ranged
from softroce_lab.check.rc.fields import PKEY as PKEY_OF_RC
from softroce_lab.check.rc.fields import check_one_pkey
from softroce_lab.check.rc.packets import Requests, path_mtu, requests_of
from softroce_lab.check.verdict import Rule, Suite, Tally, Verdict, tallies

CONTINUITY = Rule("uc.psn-continuity", "packets have successive PSNs", "IBA 9.8.2.1")
ONCE = Rule("uc.once", "no PSN is given to two packets: UC never sends again", "IBA 9.8.2.1")
OPCODES = Rule(
    "uc.opcode-sequence",
    "First, Middle and Last of one operation follow each other; only a Last or an Only ends",
    "IBA 9.8.2.2",
)
LENGTHS = Rule(
    "uc.length",
    "First and Middle packets are as long as the path MTU, Last and Only not longer, and a WRITE's "
    "add up to its RETH's DMA length",
    "IBA 9.8.2.2",
)
SILENCE = Rule(
    "uc.no-answers", "a queue pair of UC gets no acknowledgements and no NAKs", "IBA 9.8.2"
)
PKEY = Rule("uc.pkey", PKEY_OF_RC.states, PKEY_OF_RC.clause)
RULES = (CONTINUITY, ONCE, OPCODES, LENGTHS, SILENCE, PKEY)


def check(evidence: Evidence) -> Iterable[Verdict]:
    """Every flow of UC."""
    tally = tallies(RULES)
    for flow in flows(evidence):
        if flow.service != opcodes.UC:
            continue
        for part in successive(evidence, Connection(flow, None, Agreed())):
            place = evidence.place_in_time[flow.sent]
            rows = flow.sent[(place >= part.since) & (place < part.until)]
            requests = requests_of(evidence, rows, path_mtu(evidence, rows))
            tried = tallies(RULES)
            _check(evidence, requests, tried, at_sender=flow.at_sender)
            reason = doubt.of_flow(evidence, flow)
            for name, total in tally.items():
                total.add(tried[name], reason)
    _check_silence(evidence, tally["no-answers"])
    return [each.verdict() for each in tally.values()]


def _check(
    evidence: Evidence, requests: Requests, tally: Mapping[str, Tally], *, at_sender: bool
) -> None:
    _check_psns(requests, tally["psn-continuity"], at_sender=at_sender)
    _check_once(evidence, requests, tally["once"], at_sender=at_sender)
    rc_messages.check_sequence(requests, tally["opcode-sequence"])
    mtu = path_mtu(evidence, requests.rows)
    rc_messages.check_packet_lengths(requests, mtu, tally["length"])
    rc_messages.check_message_lengths(requests, tally["length"])
    check_one_pkey(evidence, requests.rows, tally["pkey"])


def _check_psns(requests: Requests, tally: Tally, *, at_sender: bool) -> None:
    jumps = np.flatnonzero(requests.psn != requests.top)
    tally.passed(len(requests) - len(jumps))
    for at in jumps.tolist():
        if not at_sender:
            tally.doubts("lost or overtaken before the capture, or skipped (--at)")
            continue
        psn, due = int(requests.psn[at]), int(requests.top[at])
        text = (
            f"{ranged(due, psn)} skipped" if psn > due else f"{named(psn)} after {named(due - 1)}"
        )
        tally.failed([requests.number[at]], text)


def _check_once(evidence: Evidence, requests: Requests, tally: Tally, *, at_sender: bool) -> None:
    order = np.lexsort((requests.place, requests.psn))
    same = np.flatnonzero(np.diff(requests.psn[order]) == 0)
    copied = evidence.commented(DUPLICATED)
    # On the sender's link comments mark packets that are copies; those of other links have none.
    may_be_copies = not at_sender and evidence.rules_of_the_run("duplicate")
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


def _check_silence(evidence: Evidence, tally: Tally) -> None:
    """Queue pairs of UC that something of RC was addressed to."""
    everything = flows(evidence)
    reliable = {
        (flow.destination, flow.qp): flow for flow in everything if flow.service == opcodes.RC
    }
    for flow in everything:
        if flow.service != opcodes.UC:
            continue
        other = reliable.get((flow.destination, flow.qp))
        if other is None:
            tally.passed()
        else:
            first = evidence.packets["number"][[flow.sent[0], other.sent[0]]]
            tally.failed(first.tolist(), f"queue pair {flow.qp} is addressed by UC and by RC")


SUITE = Suite(RULES, check)
