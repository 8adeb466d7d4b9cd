# SPDX-License-Identifier: GPL-2.0-or-later
"""Captures that do not prove what they seem to: why violations of some rules are inconclusive
there.

All the reasons are about the file, not about the hosts: headers that the snap length cut off,
packets that whoever captured missed or took twice, and clocks that stood still or went back.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from softroce_lab.check.evidence import Evidence, Indices, once
from softroce_lab.check.flows import Flow
from softroce_lab.faults.opcodes import OPCODES
from softroce_lab.telemetry.packets import Has, Kind

_Hosts = frozenset[bytes]
_PROBE = OPCODES["RC_RDMA_WRITE_ONLY"]
_LEAST = 8  # packets, at least, to conclude that every packet was captured twice
_MOST_SINGLE = 0.05  # of them
_SAME = ("opcode", "psn", "destination_qp", "source_qp", "msn", "syndrome", "payload_bytes",
         "interface", "hop_limit", "icrc", "lab_attempt")  # fmt: skip


def of_flow(evidence: Evidence, flow: Flow) -> str | None:
    """Why nothing is proven of a flow; None: something may be."""
    if frozenset((flow.source, flow.destination)) in _cut(evidence):
        return "the snap length cut headers off"
    if _is_twice(evidence):
        return "nearly every packet is there twice, with the same hop limit"
    return None


def begins_anew(evidence: Evidence, requests: Flow | None) -> str | None:
    """Why a flow's repetitions are not those of one queue pair: it has probes of a path.

    A probe is a WRITE of no bytes to nowhere. After one that failed, a queue pair
    with a backup begins anew with the same PSN.
    """
    if requests is None:
        return None
    packets = evidence.packets[requests.sent]
    probes = packets["opcode"] == _PROBE
    for name in ("dma_length", "remote_address", "rkey"):
        probes &= packets[name] == 0
    return "a queue pair with a backup begins anew with its probe's PSN" if probes.any() else None


def missed(evidence: Evidence) -> str | None:
    """Why it does not mean much that a packet is not there."""
    if any(each.dropped for each in evidence.capture.interfaces):
        return "the capture missed packets (integrity.missed)"
    return None


def untimed(evidence: Evidence) -> str | None:
    """Reasons why timestamps do not measure durations."""
    packets = evidence.packets
    times = evidence.times_ns(evidence.in_time)
    if not np.all(packets["has"] & Has.STAMPED) or (len(times) > 1 and np.ptp(times) == 0):
        return "the capture tells no times"
    if np.any(np.diff(times) < 0):
        return "the clock of the capture went back"
    return None


@once
def _cut(evidence: Evidence) -> frozenset[_Hosts]:
    """Hosts between which packets were cut in their headers.

    Not only those flows: without requests of their own, responses seem to belong to another flow.
    """
    packets = evidence.packets
    short = packets["kind"] == Kind.SHORT
    ends = np.concatenate((packets["source"][short], packets["destination"][short]), axis=1)
    return frozenset(
        frozenset((bytes(each[:16]), bytes(each[16:]))) for each in np.unique(ends, axis=0)
    )


@once
def _is_twice(evidence: Evidence) -> bool:
    """As captures of all interfaces at once are, or two runs of one program."""
    rows = np.flatnonzero(evidence.is_roce)
    _, counts = np.unique(_names(evidence, rows), return_counts=True)
    single = np.count_nonzero(counts == 1)
    return bool(len(rows) >= _LEAST and single <= _MOST_SINGLE * len(rows))


def _names(evidence: Evidence, rows: Indices) -> npt.NDArray[np.uint64]:
    """A number for each row that rows with the same headers share."""
    packets = evidence.packets
    name = np.zeros(len(rows), np.uint64)
    for column in _SAME:
        name = (name ^ packets[column][rows].astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        name ^= name >> np.uint64(29)
    return name
