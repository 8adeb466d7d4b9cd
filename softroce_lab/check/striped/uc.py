# SPDX-License-Identifier: GPL-2.0-or-later
"""Packets of striped messages that travel as UC WRITEs with immediate, read as if
they had the lab's header.

Such a packet names a slot, a generation and an offset; which message that is, its key and its
length are in the receiver's message before: CLEAR. The attempt is how often it was sent before.
"""

from __future__ import annotations

import collections
import dataclasses

import numpy as np
import numpy.typing as npt

from softroce_lab.check.evidence import Evidence
from softroce_lab.telemetry.packets import Has, Packets
from softroce_lab.transports import control

_OPCODE = 0x2B  # UC RDMA WRITE Only with immediate
_DATA, _CONTROL = 0, 1  # enum lab_kind
_SLOT_AT, _INDEX_AT, _INDICES = 22, 4, 1 << 18  # 10 bits slot, 18 bits offset, 4 bits user's
_PATHS = 16  # channels of a generation
_SOURCE_PORT = 0xC000  # of path 0
_MOST_ATTEMPTS = 65535
_SLOTS = 1024  # MessageConfig::message_slots

_Pair = tuple[bytes, bytes]  # GIDs of sender and receiver
_Indices = npt.NDArray[np.int64]


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
    columns = {
        "qkey": cleared.qkey,
        "lab_kind": _DATA,
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
