# SPDX-License-Identifier: GPL-2.0-or-later
"""Which stream each packet of striped messages belongs to, and which stream answers it.

A stream is all that one endpoint sends another. The endpoints of a run share one Q_Key, and
endpoints that follow one another over the same addresses have different ones.

Processes that carry operations of reliable connections differ: each has a Q_Key of its own, and
all that is sent to the process has this Q_Key. So the two directions have different ones. The
hello of a process tells its Q_Key (native/engine/rnic/greeter.hpp). Processes on one host share
its address; the upper bits of their queue pairs' numbers tell them apart.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from softroce_lab.check.evidence import Evidence
from softroce_lab.check.striped.rows import Numbers, addresses, mix
from softroce_lab.telemetry.packets import Has, Packets

_SHARE_BITS = 17  # LAB_SHARE_QPN_BITS of xdp/lab_maps.h
_INCARNATION = slice(10, 18)  # in the body of a hello
_QKEYS = 1 << 32
_Indices = npt.NDArray[np.int64]


class Ends:
    """The two ends of each row, as numbers; `rows` are in time."""

    def __init__(self, evidence: Evidence, packets: Packets, rows: _Indices) -> None:
        self._evidence, self._packets, self._rows = evidence, packets, rows
        sender = _processes(packets, "source", rows)
        receiver = _processes(packets, "destination", rows)
        self._pair, self._back_pair = mix(sender, receiver), mix(receiver, sender)
        self._sender = sender
        self._qkey = packets["qkey"][rows].astype(np.uint64)
        self._apart = self._has_own_qkey()
        self._own_qkey = self._qkeys_of_senders()

    def keys(self, eras: Numbers) -> tuple[Numbers, Numbers]:
        """Of each row a number for its stream, and the number of the stream that answers it.

        `eras`: which of several runs over the same addresses each row is of.
        """
        era = mix(self._qkey, eras)
        key, back = mix(self._pair, era), mix(self._back_pair, era)
        apart = self._apart
        key[apart] = mix(mix(self._pair, self._qkey), self._own_qkey)[apart]
        back[apart] = mix(mix(self._back_pair, self._own_qkey), self._qkey)[apart]
        return key, back

    def _has_own_qkey(self) -> npt.NDArray[np.bool_]:
        """Rows between processes that carry operations, each with its own Q_Key."""
        is_operation = self._packets["has"][self._rows] & Has.OPERATION != 0
        pairs = np.concatenate([self._pair[is_operation], self._back_pair[is_operation]])
        is_shared = np.isin(mix(self._pair, self._qkey), mix(self._back_pair, self._qkey))
        apart: npt.NDArray[np.bool_] = np.isin(self._pair, pairs) & ~is_shared
        return apart

    def _qkeys_of_senders(self) -> Numbers:
        """The Q_Key of the process that sent each row; 0: not known.

        Its newest hello before the row tells it. Without hellos the newest answer does.
        """
        own = np.zeros(len(self._rows), dtype=np.uint64)
        if not self._apart.any():
            return own
        places = self._evidence.place_in_time[self._rows]
        hellos = self._hellos()
        for pair in np.unique(self._pair[self._apart]).tolist():
            mine = np.flatnonzero(self._apart & (self._pair == np.uint64(pair)))
            told_at, told = hellos.get(int(self._sender[mine[0]]), (None, None))
            if told_at is None or told is None:
                answers = self._apart & (self._pair == self._back_pair[mine[0]])
                told_at, told = places[answers], self._qkey[answers]
            if len(told):
                newest = np.searchsorted(told_at, places[mine]) - 1
                own[mine] = told[np.maximum(newest, 0)]
        return own

    def _hellos(self) -> dict[int, tuple[_Indices, Numbers]]:
        """By process the places of its hellos, and the Q_Keys in them."""
        evidence = self._evidence
        rows = evidence.in_time[evidence.is_hello[evidence.in_time]]
        qkeys: dict[int, list[int]] = {}
        told_at: dict[int, list[int]] = {}
        senders = _processes(self._packets, "source", rows).tolist()
        for row, sender in zip(rows.tolist(), senders, strict=True):
            body = evidence.capture.payload(int(self._packets["number"][row]))
            if len(body) >= _INCARNATION.stop:
                qkey = int.from_bytes(body[_INCARNATION], "big") % _QKEYS
                qkeys.setdefault(sender, []).append(qkey)
                told_at.setdefault(sender, []).append(int(evidence.place_in_time[row]))
        return {
            sender: (np.array(told_at[sender]), np.array(qkeys[sender], dtype=np.uint64))
            for sender in qkeys
        }


def _processes(packets: Packets, end: str, rows: _Indices) -> Numbers:
    """A number for the process at one end of each row; UC packets name no queue pair of it."""
    names = {"source": "source_qp", "destination": "destination_qp"}
    shares = packets[names[end]][rows].astype(np.uint64) >> np.uint64(_SHARE_BITS)
    shares[packets["has"][rows] & Has.DETH == 0] = 0
    return mix(addresses(packets, end, rows), shares)
