# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of a capture as the rules of striped messages need them.

UC WRITEs are read as if they had the lab's header, parity is told from data, and where a row was
captured is known: at the sender, at the receiver, or between.

A UC WRITE with immediate names a slot, a generation and an offset; which message that is, its key
and its length are in the receiver's message before: CLEAR. The attempt is how often it was sent
before.

The kind of a packet in our header tells parity. An immediate has no kind: there, packets behind the
length of the receive are parity, unless the run's transport has no codes.

What follows from a packet that is *not* there depends on the place of capture. A host sends with a
hop limit of 64 and switches take one off, so a packet with 64 is on the link of its sender; what
runs the other way on that link arrives at this host.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.check.evidence import Evidence, ends, hosts_of
from softroce_lab.telemetry.packets import Has, Packets
from softroce_lab.transports import control

_OPCODE = 0x2B  # UC RDMA WRITE Only with immediate
_DATA, _CONTROL, _PARITY = 0, 1, 4  # enum lab_kind
_SLOT_AT, _INDEX_AT, _INDICES = 22, 4, 1 << 18  # 10 bits slot, 18 bits offset, 4 bits user's
_PATHS = 16  # channels of a generation
_SOURCE_PORT = 0xC000  # of path 0
_MOST_ATTEMPTS = 65535
_SLOTS = 1024  # MessageConfig::message_slots

_Pair = tuple[bytes, bytes]  # GIDs of sender and receiver
_Indices = npt.NDArray[np.int64]
CODED = ("sdr_ec", "sdr_auto")
"""The transports that have codes."""
Numbers: TypeAlias = npt.NDArray[np.uint64]
INITIAL_HOPS = 64  # of the engine's packets (native/engine/codec/packet.hpp)


# ---------------------------------------------------------------- UC WRITEs


@dataclasses.dataclass(slots=True)
class _Cleared:
    """The content of a receiver's CLEAR messages."""

    qkey: int
    first_qp: int
    generations: int
    chunk_bytes: int
    receives: dict[int, tuple[tuple[int, int, int], int, int]]  # by id: key, length, place


def translated(evidence: Evidence) -> Packets:
    """The capture's rows; those of such packets with the columns of the lab's header filled in.

    A packet whose CLEAR was not captured, or cut, stays as it is.
    """
    packets = evidence.packets
    rows = np.flatnonzero(evidence.is_roce & (packets["opcode"] == _OPCODE))
    pairs = _pairs(evidence) if len(rows) else {}
    if not pairs:
        return packets
    packets = packets.copy()
    rows = rows[np.argsort(evidence.place_in_time[rows], kind="stable")]
    ends = packets["source"][rows], packets["destination"][rows]
    names = [(bytes(one), bytes(other)) for one, other in zip(*ends, strict=True)]
    of_pair: dict[_Pair, list[int]] = collections.defaultdict(list)
    for row, name in zip(rows.tolist(), names, strict=True):
        of_pair[name].append(row)
    for name, cleared in pairs.items():
        if name in of_pair:
            _fill(evidence, packets, np.array(of_pair[name]), cleared)
    return packets


def _pairs(evidence: Evidence) -> dict[_Pair, _Cleared]:
    """All CLEARs of the capture, by whom they let send."""
    packets = evidence.packets
    found: dict[_Pair, _Cleared] = {}
    has = evidence.is_roce & (packets["has"] & Has.LAB != 0)
    rows = np.flatnonzero(has & (packets["lab_kind"] == _CONTROL))
    rows = rows[np.argsort(evidence.place_in_time[rows], kind="stable")]
    for row in rows.tolist():
        body = evidence.capture.payload(int(packets["number"][row]))
        length = int(packets["lab_length"][row])
        if body[:1] != bytes([control.CLEAR]) or len(body) < length:
            continue
        try:
            clear = control.decode(body[:length])
        except control.ControlError:
            continue
        assert isinstance(clear, control.Clear)  # noqa: S101 - implied by its type
        name = bytes(packets["destination"][row]), bytes(packets["source"][row])
        chunk_bytes = clear.slot_bytes // _INDICES
        if chunk_bytes == 0 or clear.generations == 0:
            continue
        qkey = int(packets["qkey"][row])
        cleared = found.setdefault(
            name, _Cleared(qkey, clear.first_qp, clear.generations, chunk_bytes, {})
        )
        place = int(evidence.place_in_time[row])
        for id_, key, length_bytes in clear.receives:
            cleared.receives.setdefault(id_, (key, length_bytes, place))
    return found


def _slots(evidence: Evidence) -> int:
    one = None if evidence.run is None else evidence.run.only
    return _SLOTS if one is None else int(one.get("message_slots", _SLOTS))


def _fill(evidence: Evidence, packets: Packets, rows: _Indices, cleared: _Cleared) -> None:
    """The columns of one pair's packets; `rows` are in time."""
    channel = packets["destination_qp"][rows].astype(np.int64) - cleared.first_qp
    immediate = packets["immediate"][rows].astype(np.int64)
    path = channel % _PATHS
    mine = (channel >= 0) & (channel < _PATHS * cleared.generations)
    mine &= packets["source_port"][rows] == _SOURCE_PORT + path
    slots = _slots(evidence)
    use = channel // _PATHS * slots + (immediate >> _SLOT_AT)
    ids = _ids(evidence, rows, use, cleared, slots * cleared.generations)
    mine &= ids >= 0
    rows, ids, path = rows[mine], ids[mine], path[mine]
    index = immediate[mine] >> _INDEX_AT & (_INDICES - 1)
    receives = [cleared.receives[id_] for id_ in ids.tolist()]
    length = np.array([each[1] for each in receives], dtype=np.int64)
    count = np.maximum(1, -(-length // cleared.chunk_bytes))
    keys = np.array([each[0] for each in receives], dtype=np.int64).reshape(-1, 3)
    is_coded = _is_coded(evidence)
    columns = {
        "qkey": cleared.qkey,
        "lab_kind": np.where(is_coded & (index >= count), _PARITY, _DATA),
        "lab_code": is_coded,
        "lab_path": path,
        "lab_attempt": _attempts(packets, rows, ids, index),
        "lab_operation": keys[:, 0],
        "lab_step": keys[:, 1],
        "lab_message": keys[:, 2],
        "lab_message_id": ids,
        "lab_index": index,
        "lab_count": count,
        "lab_length": length,
    }
    for column, values in columns.items():
        packets[column][rows] = values
    packets["has"][rows] |= np.uint32(Has.LAB)


def _is_coded(evidence: Evidence) -> bool:
    """Whether messages have a code: unless the run says otherwise, they may."""
    one = None if evidence.run is None else evidence.run.only
    protocol = None if one is None else one.get("protocol")
    return not protocol or protocol in CODED


def _ids(
    evidence: Evidence, rows: _Indices, use: _Indices, cleared: _Cleared, uses: int
) -> _Indices:
    """The message that each packet's slot and generation meant then; -1: not announced."""
    known: dict[int, list[tuple[int, int]]] = collections.defaultdict(list)
    for id_, (_, _, place) in cleared.receives.items():
        known[id_ % uses].append((place, id_))
    found = np.full(len(rows), -1, dtype=np.int64)
    places = evidence.place_in_time[rows]
    for number, each in known.items():
        which = np.flatnonzero(use == number)
        each.sort()
        begun = np.array([place for place, _ in each])
        newest = np.searchsorted(begun, places[which]) - 1
        named = np.array([id_ for _, id_ in each])
        found[which] = np.where(newest >= 0, named[np.maximum(newest, 0)], -1)
    return found


def _attempts(packets: Packets, rows: _Indices, ids: _Indices, index: _Indices) -> _Indices:
    """How often each packet had been sent before: every sending has a PSN of its channel."""
    sendings: dict[tuple[int, int], dict[tuple[int, int], int]] = collections.defaultdict(dict)
    channels, psns = packets["destination_qp"][rows].tolist(), packets["psn"][rows].tolist()
    attempts = np.zeros(len(rows), dtype=np.int64)
    each = zip(ids.tolist(), index.tolist(), channels, psns, strict=True)
    for number, (id_, packet, channel, psn) in enumerate(each):
        before = sendings[id_, packet]
        attempts[number] = before.setdefault((channel, psn), len(before))
    return np.minimum(attempts, _MOST_ATTEMPTS)


# ---------------------------------------------------------------- sizes


def packet_sizes(view: Any) -> npt.NDArray[np.int64]:
    """Data bytes of a full packet, by stream of a `Striped`; -1: none was seen."""
    which = view.data[view.column("has", view.data) & Has.TRIMMED == 0]
    bytes_, index, count = (
        view.column(name, which).astype(np.int64)
        for name in ("payload_bytes", "lab_index", "lab_count")
    )
    stream_of, inner = view.stream_of[which], index < count - 1
    size = np.full(len(view.streams), -1, np.int64)
    for stream in np.unique(stream_of[inner]).tolist():
        seen, times = np.unique(bytes_[(stream_of == stream) & inner], return_counts=True)
        size[stream] = seen[times.argmax()]
    return size


# ---------------------------------------------------------------- places of capture


class Taps:
    """Which rows leave their sender there, and which reach their receiver."""

    def __init__(self, evidence: Evidence, rows: npt.NDArray[np.int64]) -> None:
        """Of `rows`, indices of packets with the lab's header."""
        packets = evidence.packets
        self._names = evidence.interface_names()
        sources, destinations = (
            addresses(packets, "source", rows),
            addresses(packets, "destination", rows),
        )
        interfaces = packets["interface"][rows].astype(np.uint64)
        fresh = packets["hop_limit"][rows] == INITIAL_HOPS
        uplinks = self._uplinks(fresh, sources, interfaces)
        downlinks = {
            (self._reverse_of(number), host) for number, host in uplinks if number in self._known
        }
        hosts = hosts_of(evidence)
        self.leaves = _among(interfaces, sources, uplinks)
        self.arrives = _among(interfaces, destinations, downlinks)
        at_hosts = [n for n, name in self._names.items() if ends(name)[1] in hosts]
        self.arrives |= np.isin(interfaces, np.array(at_hosts, dtype=np.uint64))

    def _uplinks(
        self,
        fresh: npt.NDArray[np.bool_],
        sources: Numbers,
        interfaces: Numbers,
    ) -> set[tuple[int, int]]:
        self._known = set(np.unique(interfaces).tolist())
        pairs = np.unique(np.stack([interfaces[fresh], sources[fresh]], axis=1), axis=0)
        return {(int(number), int(host)) for number, host in pairs}

    def _reverse_of(self, interface: int) -> int:
        """The interface of the same link's other direction; itself, where one has both."""
        name = self._names.get(interface)
        if name is None or "->" not in name:
            return interface
        tail, _, head = name.partition("->")
        other = f"{head}->{tail}"
        return next((n for n, each in self._names.items() if each == other), -1)


def addresses(packets: Packets, field: str, rows: npt.NDArray[np.int64]) -> Numbers:
    """A number for the GID of each of these rows: one half with the other mixed in."""
    halves = packets[field][rows].view("<u8").reshape(-1, 2)
    return mix(halves[:, 0].astype(np.uint64), halves[:, 1])


def mix(number: Numbers, other: Numbers) -> Numbers:
    """Two numbers as one, 64 bits wide (the finaliser of splitmix64 between them)."""
    number = number + np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ number >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ number >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed: Numbers = (number ^ number >> np.uint64(31)) ^ other
    return mixed


def _among(
    interfaces: Numbers, hosts: Numbers, pairs: set[tuple[int, int]]
) -> npt.NDArray[np.bool_]:
    wanted = np.array([(number, host) for number, host in pairs if number >= 0], dtype=np.uint64)
    wanted = wanted.reshape(-1, 2)
    return np.isin(mix(interfaces, hosts), mix(wanted[:, 0], wanted[:, 1]))
