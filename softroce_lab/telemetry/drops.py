# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads the drop records of softroce-monitor (xdp/lab_records.h).

The file grows while the lab is up; what is read is what was there when it was opened. Times are
CLOCK_MONOTONIC, in nanoseconds.
"""

from __future__ import annotations

import ipaddress
import struct
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.errors import RunError

EFFECTS = {1: "drop", 2: "corrupt", 4: "duplicate", 8: "reorder"}  # enum lab_effect
EFFECT_DROP, EFFECT_CORRUPT, EFFECT_REORDER, EFFECT_DOWN = 1, 2, 8, 16

KIND_NONE = 0xFF  # LAB_KIND_NONE: a frame without the lab's header

DROP = np.dtype(
    [
        ("time_ns", "u8"),
        ("directed_link", "u4"),
        ("rule_id", "u4"),
        ("src", "u4"),  # IPv4 address as a number
        ("dst", "u4"),
        ("message", "u4"),  # this to kind: zero without the lab's header
        ("index", "u4"),
        ("operation", "u2"),
        ("step", "u2"),
        ("attempt", "u2"),
        ("kind", "u1"),
        ("zero", "u1"),
        ("sport", "u2"),
        ("effect", "u2"),  # one of EFFECTS; of a drop on a link that is down: and EFFECT_DOWN
        ("psn", "u4"),
        ("qpn", "u4"),
        ("length", "u4"),  # bytes of the frame
    ]
)

Drops: TypeAlias = npt.NDArray[np.void]  # of dtype DROP

_HEADER = struct.Struct("=8sII")


def addresses(numbers: npt.NDArray[np.uint32]) -> npt.NDArray[np.object_]:
    """`src` or `dst` of drops as text; rows of one address share it."""
    unique, where = np.unique(numbers, return_inverse=True)
    texts = [str(ipaddress.IPv4Address(number)) for number in unique.tolist()]
    return np.array(texts, dtype=object)[where]


def _check_header(head: bytes, magic: bytes, record_bytes: int, path: Path) -> None:
    expected = _HEADER.pack(magic, _HEADER.size, record_bytes)
    if head != expected:
        raise RunError(f"{path} is not a file of this softroce-monitor's {magic.decode()} records")


def read_drops(path: Path, *, since_ns: int = 0, until_ns: int | None = None) -> Drops:
    """The drop records of since_ns <= time < until_ns, in the order of the ring buffer.

    RunError if the file is another one.
    """
    data = path.read_bytes()
    _check_header(data[: _HEADER.size], b"LABDROP3", DROP.itemsize, path)
    count = (len(data) - _HEADER.size) // DROP.itemsize
    records = np.frombuffer(data, DROP, count, _HEADER.size)
    wanted = records["time_ns"] >= since_ns
    if until_ns is not None:
        wanted &= records["time_ns"] < until_ns
    return records[wanted]
