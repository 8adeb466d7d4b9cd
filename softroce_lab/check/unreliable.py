# SPDX-License-Identifier: GPL-2.0-or-later
"""Unreliable connections (IBA 9.8.2): in order, once, without acknowledgements. And unreliable
datagrams (IBA 9.8.3): messages of one packet, and the Q_Key that lets them in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from softroce_lab.check import doubt, opcodes
from softroce_lab.check.connections import (
    GENERAL_SERVICES_QP,
    Agreed,
    Connection,
    successive,
    unwrapped,
)
from softroce_lab.check.evidence import DUPLICATED, Evidence, Indices
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
from softroce_lab.telemetry.packets import Has

UC_RULES = Rules()
UD_RULES = Rules()
GENERAL_SERVICES_QKEY = 0x80010000
_MOST_BYTES = 4096  # the greatest path MTU
_LAB_BYTES = 40  # struct lab_hdr, part of the datagram
_OPERATION_BYTES = 24  # struct lab_operation behind it


# ---------------------------------------------------------------- unreliable connections


class _Part(NamedTuple):
    """What a flow of UC sent between two changes of its connection."""

    evidence: Evidence
    flow: Flow
    is_first: bool  # of the flow's parts
    of_rc: Flow | None  # to the same queue pair
    requests: Requests
    mtu: int


def check(evidence: Evidence) -> list[Verdict]:
    total = [Tally(rule) for rule in UC_RULES]
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


@UC_RULES.rule("uc.psn-continuity", "packets have successive PSNs", "IBA 9.8.2.1")
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


@UC_RULES.rule("uc.once", "no PSN is given to two packets: UC never sends again", "IBA 9.8.2.1")
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


@UC_RULES.rule(
    "uc.opcode-sequence",
    "First, Middle and Last of one operation follow each other; only a Last or an Only ends",
    "IBA 9.8.2.2",
)
def _check_sequence(part: _Part, tally: Tally) -> None:
    check_sequence(part.requests, tally)


@UC_RULES.rule(
    "uc.length",
    "First and Middle packets are as long as the path MTU, Last and Only not longer, and a WRITE's "
    "add up to its RETH's DMA length",
    "IBA 9.8.2.2",
)
def _check_lengths(part: _Part, tally: Tally) -> None:
    check_packet_lengths(part.requests, part.mtu, tally)
    check_message_lengths(part.requests, tally)


@UC_RULES.rule(
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


@UC_RULES.rule("uc.pkey", *ONE_PKEY)
def _check_pkeys(part: _Part, tally: Tally) -> None:
    check_one_pkey(part.evidence, part.requests.rows, tally)


UC = Suite(UC_RULES, check)


# ---------------------------------------------------------------- unreliable datagrams


def _datagrams(evidence: Evidence) -> list[Flow]:
    return [flow for flow in flows(evidence) if flow.service == opcodes.UD]


@UD_RULES.rule("ud.length", "a message is one packet, and fits the path MTU", "IBA 9.8.3.1")
def _check_datagram_lengths(evidence: Evidence, tally: Tally) -> None:
    packets = evidence.packets
    for flow in _datagrams(evidence):
        size = packets["payload_bytes"][flow.sent].astype(np.int64)
        size += np.where(packets["has"][flow.sent] & Has.LAB, _LAB_BYTES, 0)
        size += np.where(packets["has"][flow.sent] & Has.OPERATION, _OPERATION_BYTES, 0)
        most = evidence.options.path_mtu or _MOST_BYTES
        long = np.flatnonzero(size > most)
        tally.passed(len(size) - len(long))
        for at in long.tolist():
            number = packets["number"][flow.sent[at]]
            tally.failed([number], f"a datagram of {size[at]} bytes, where {most} fit")


@UD_RULES.rule(
    "ud.qkey",
    "packets to one queue pair carry one Q_Key, and to QP 1 the one that belongs to it",
    "IBA 10.2.5, 9.8.3.2",
)
def _check_qkeys(evidence: Evidence, tally: Tally) -> None:
    packets = evidence.packets
    for flow in _datagrams(evidence):
        # Of hellos there is one Q_Key, whatever queue pair they are for.
        sent = flow.sent[~evidence.is_hello[flow.sent]]
        keys = packets["qkey"][sent]
        if not len(keys):
            continue
        values, counts = np.unique(keys, return_counts=True)
        ours = bool(np.all(packets["has"][sent] & Has.LAB))
        if ours and np.count_nonzero(np.diff(keys)) == len(values) - 1 > 0:
            # Runs of the lab follow one another, each with a Q_Key of its own.
            tally.passed(len(keys))
            tally.notes_that("queue pairs were made anew, with another Q_Key")
            continue
        due = int(values[counts.argmax()])
        if flow.qp == GENERAL_SERVICES_QP:
            due = GENERAL_SERVICES_QKEY
        wrong = np.flatnonzero(keys != due)
        tally.passed(len(keys) - len(wrong))
        for at in wrong.tolist():
            tally.failed(
                [packets["number"][sent[at]]],
                f"Q_Key {int(keys[at]):#x} to queue pair {flow.qp}, whose Q_Key is {due:#x}",
            )


@UD_RULES.rule(
    "ud.source-qp",
    "a datagram names the queue pair that it came from, and that one is not 0 on RoCE",
    "IBA 9.3.3, annex A16",
)
def _check_sources(evidence: Evidence, tally: Tally) -> None:
    packets = evidence.packets
    for flow in _datagrams(evidence):
        nobody = np.flatnonzero(packets["source_qp"][flow.sent] == 0)
        tally.passed(len(flow.sent) - len(nobody))
        for at in nobody.tolist():
            tally.failed([packets["number"][flow.sent[at]]], "source queue pair 0")


@UD_RULES.rule(
    "ud.psn-continuity", "datagrams of one queue pair have successive PSNs", "IBA 9.8.3.1"
)
def _check_datagram_psns(evidence: Evidence, tally: Tally) -> None:
    """By source, for a queue pair counts all that it sends, to whomever."""
    packets = evidence.packets
    by_source: dict[bytes, list[Flow]] = {}
    for flow in _datagrams(evidence):
        by_source.setdefault(flow.source, []).append(flow)
    for theirs in by_source.values():
        rows = np.concatenate([flow.sent for flow in theirs])
        rows = rows[(packets["has"][rows] & Has.LAB) == 0]  # those have PSNs by path
        rows = rows[np.argsort(evidence.place_in_time[rows])]
        at_sender = all(flow.at_sender for flow in theirs)
        for part in _by_queue_pair(packets["source_qp"][rows], rows):
            _check_queue_pair(evidence, part, tally, at_sender=at_sender)


def _by_queue_pair(qps: npt.NDArray[np.uint32], rows: Indices) -> list[Indices]:
    order = np.argsort(qps, kind="stable")
    parts = np.split(rows[order], np.flatnonzero(np.diff(qps[order])) + 1)
    return [part for part in parts if len(part)]


def _check_queue_pair(evidence: Evidence, rows: Indices, tally: Tally, *, at_sender: bool) -> None:
    packets = evidence.packets
    psn = unwrapped(packets["psn"][rows])
    steps = np.diff(psn)
    odd = np.flatnonzero(steps != 1)
    tally.passed(len(steps) - len(odd))
    for at in odd.tolist():
        one, other = rows[at], rows[at + 1]
        numbers = packets["number"][[one, other]].tolist()
        if steps[at] == 0 and not _same(evidence, int(one), int(other)):
            tally.failed(numbers, f"PSN {packets['psn'][one]} twice, with different contents")
        elif at_sender:
            tally.failed(numbers, f"PSN {packets['psn'][other]} after {packets['psn'][one]}")
        else:
            tally.doubts("lost, copied or overtaken before the capture, or wrong (--at)")


def _same(evidence: Evidence, one: int, other: int) -> bool:
    both = evidence.packets[[one, other]]
    return all(
        both[name][0] == both[name][1]
        for name in ("opcode", "destination_qp", "payload_bytes", "payload_hash", "immediate")
    )


UD = Suite.of_evidence(UD_RULES)
