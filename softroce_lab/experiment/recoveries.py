# SPDX-License-Identifier: GPL-2.0-or-later
"""The log of recovery, as columns of recovery.parquet (docs/reference/run-directory.md).

Hosts, or the simulated fabric, record addresses and queue pair numbers. This module replaces them
by the names of hosts. There may be a million rows. So they stay records of 64 bytes until they are
written, and only a part of them at a time is turned into words.
"""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab import _native
from softroce_lab.experiment.hosts.messenger import RailQueuePairs
from softroce_lab.plan.base_rtt import Rails
from softroce_lab.plan.plan import Plan, Port
from softroce_lab.telemetry import drops
from softroce_lab.telemetry.drops import Drops, addresses
from softroce_lab.telemetry.recoveries import (
    EVENTS,
    NO_LINK,
    PARITY_REASONS,
    REASONS,
    Recoveries,
)
from softroce_lab.telemetry.repairs import CAUSES

Columns: TypeAlias = dict[str, npt.NDArray[Any]]

_PART = 1 << 16  # rows: fewer make a larger file, more take more memory
_RETRANSMIT, _SENT_AGAIN, _LOST, _NAK_SENT, _PARITY_SENT = map(
    EVENTS.index, ("retransmit", "sent_again", "lost", "nak_sent", "parity_sent")
)
_POLICY = REASONS.index("policy")
_NUMBERS = ("operation", "step", "message", "index", "last_index", "packets", "attempt", "sport",
            "qpn", "psn", "last_psn")  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class QueuePair:
    """One direction of a reliable connection: who sends data, to which queue pair.

    `part` and `parts`: which messages it sends, as in `RailQueuePairs`.
    """

    source: int  # addresses as numbers
    destination: int
    source_qpn: int
    qpn: int  # the destination's, as packets with data have it
    first_psn: int
    part: int = 0
    parts: int = 1


def queue_pairs(
    ends: Mapping[int, Sequence[RailQueuePairs]], addresses: Mapping[int, Sequence[int]]
) -> list[QueuePair]:
    """Each direction that both ends know; both by host, `addresses` of the rails that it uses."""
    found = []
    for here, lists in ends.items():
        for number, (rail, of_peer, part, parts) in enumerate(lists):
            for peer, (qp, first_psn) in of_peer.items():
                if peer not in ends or here not in ends[peer][number].of_peer:
                    continue
                there, _ = ends[peer][number].of_peer[here]
                source, destination = addresses[here][rail], addresses[peer][rail]
                found.append(QueuePair(source, destination, qp, there, first_psn, part, parts))
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Recorded:
    """A run's records and the names of what they tell of; iterated over, it gives columns of parts.

    There is a part even of no records.
    """

    found: Recoveries
    hosts: Mapping[int, str]  # names by address
    links: Sequence[str]  # of directed links, by number
    pairs: Sequence[QueuePair]

    def __iter__(self) -> Iterator[Columns]:
        for begin in range(0, max(len(self.found), 1), _PART):
            yield _columns(self, self.found[begin : begin + _PART])


def recorded(
    plan: Plan,
    rails: Rails,
    found: Recoveries,
    lost: Drops,
    links: Sequence[str],
    ends: Mapping[int, Sequence[RailQueuePairs]],
) -> tuple[Recorded, list[dict[str, int]]]:
    """A run's records and, for the manifest, the queue pairs that they and drops tell of."""
    hosts = plan.plain_hosts
    addresses = {
        index: [_number(node.ports[rail]) for rail in rails.get(node.name, (0,))]
        for index, node in enumerate(hosts)
    }
    names = {_number(port): node.name for node in hosts for port in node.ports}
    pairs = queue_pairs(ends, addresses)
    return Recorded(found, names, links, pairs), used(pairs, found, lost)


def _number(port: Port) -> int:
    return int.from_bytes(socket.inet_aton(str(port.address)), "big")


def of_hosts(parts: Iterable[Recoveries], begun_ns: int) -> Recoveries:
    """Records of hosts' processes, in one order of time. Times become those since the run began."""
    joined = np.concatenate([*parts])
    joined["time_ns"] -= begun_ns
    return joined[np.argsort(joined["time_ns"], kind="stable")]


def _columns(of: Recorded, found: Recoveries) -> Columns:
    found = _with_ends(found, of.pairs)
    event, host = found["event"], _named(found["host"], of.hosts)
    why = np.array(REASONS, dtype=object)[found["reason"]]
    why[event != _RETRANSMIT] = ""
    decided = (event == _RETRANSMIT) & (found["reason"] == _POLICY) & (found["cause"] != 0)
    why[decided] = np.array(_native.RETRANSMIT_CAUSES, dtype=object)[found["cause"][decided]]
    parity = event == _PARITY_SENT
    why[parity] = np.array(PARITY_REASONS, dtype=object)[found["cause"][parity]]
    lost = event == _LOST
    cause = np.array(CAUSES, dtype=object)[np.where(lost, found["cause"], 0)]
    cause[~lost] = ""
    names = np.array([*of.links, ""], dtype=object)
    kind = drops.packet_kinds(found["packet_kind"])
    kind[~lost & (event != _SENT_AGAIN)] = ""
    return {
        "time_ns": found["time_ns"],
        "host": host,
        "event": np.array(EVENTS, dtype=object)[event],
        "reason": why,
        "cause": cause,
        "link": names[np.where(found["link"] == NO_LINK, len(of.links), found["link"])],
        "packet_kind": kind,
        "src": addresses(found["source"]),
        "dst": addresses(found["destination"]),
        **{name: found[name] for name in _NUMBERS},
    }


def _with_ends(found: Recoveries, pairs: Iterable[QueuePair]) -> Recoveries:
    """What queue pairs did, with the ends of the packets that it is about."""
    by_source = {(each.source, each.source_qpn): each for each in pairs}
    by_destination = {(each.destination, each.qpn): each for each in by_source.values()}
    found = found.copy()
    for row in np.flatnonzero((found["source"] == 0) & (found["qpn"] != 0)).tolist():
        record = found[row]
        known = by_destination if record["event"] == _NAK_SENT else by_source
        pair = known.get((int(record["host"]), int(record["qpn"])))
        if pair is not None:
            record["source"], record["destination"] = pair.source, pair.destination
            record["qpn"] = pair.qpn
    return found


def _named(numbers: npt.NDArray[np.uint32], hosts: Mapping[int, str]) -> npt.NDArray[Any]:
    unique, where = np.unique(numbers, return_inverse=True)
    return np.array([hosts.get(number, "") for number in unique.tolist()], dtype=object)[where]


def used(pairs: Iterable[QueuePair], found: Recoveries, lost: Drops) -> list[dict[str, int]]:
    """Those that records and drops tell of, and whose PSNs tell messages: for the manifest."""
    met = _ends(found["destination"], found["qpn"]) | _ends(lost["dst"], lost["qpn"])
    return [
        dataclasses.asdict(each)
        for each in pairs
        if each.parts and each.destination << 32 | each.qpn in met
    ]


def _ends(destinations: npt.NDArray[np.uint32], qpns: npt.NDArray[np.uint32]) -> set[int]:
    return set((destinations.astype(np.uint64) << np.uint64(32) | qpns).tolist())
