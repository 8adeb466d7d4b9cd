# SPDX-License-Identifier: GPL-2.0-or-later
"""Unreliable datagrams (IBA 9.8.3): messages of one packet, and the Q_Key that lets them in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from softroce_lab.check import opcodes
from softroce_lab.check.connections import GENERAL_SERVICES_QP, unwrapped
from softroce_lab.check.evidence import Evidence, Indices
from softroce_lab.check.flows import Flow, flows
from softroce_lab.check.verdict import Rules, Suite, Tally
from softroce_lab.telemetry.packets import Has

RULES = Rules()
GENERAL_SERVICES_QKEY = 0x80010000
_MOST_BYTES = 4096  # the greatest path MTU
_LAB_BYTES = 40  # struct lab_hdr, part of the datagram


def _datagrams(evidence: Evidence) -> list[Flow]:
    return [flow for flow in flows(evidence) if flow.service == opcodes.UD]


@RULES.rule(
    "ud.length",
    "a message is one packet, and fits the path MTU",
    "IBA 9.8.3.1",
)
def _check_lengths(evidence: Evidence, tally: Tally) -> None:
    packets = evidence.packets
    for flow in _datagrams(evidence):
        size = packets["payload_bytes"][flow.sent].astype(np.int64)
        size += np.where(packets["has"][flow.sent] & Has.LAB, _LAB_BYTES, 0)
        most = evidence.options.path_mtu or _MOST_BYTES
        long = np.flatnonzero(size > most)
        tally.passed(len(size) - len(long))
        for at in long.tolist():
            number = packets["number"][flow.sent[at]]
            tally.failed([number], f"a datagram of {size[at]} bytes, where {most} fit")


@RULES.rule(
    "ud.qkey",
    "packets to one queue pair carry one Q_Key, and to QP 1 the one that belongs to it",
    "IBA 10.2.5, 9.8.3.2",
)
def _check_qkeys(evidence: Evidence, tally: Tally) -> None:
    packets = evidence.packets
    for flow in _datagrams(evidence):
        keys = packets["qkey"][flow.sent]
        values, counts = np.unique(keys, return_counts=True)
        ours = bool(np.all(packets["has"][flow.sent] & Has.LAB))
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
                [packets["number"][flow.sent[at]]],
                f"Q_Key {int(keys[at]):#x} to queue pair {flow.qp}, whose Q_Key is {due:#x}",
            )


@RULES.rule(
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


@RULES.rule(
    "ud.psn-continuity",
    "datagrams of one queue pair have successive PSNs",
    "IBA 9.8.3.1",
)
def _check_psns(evidence: Evidence, tally: Tally) -> None:
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


SUITE = Suite.of_evidence(RULES)
