# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads the drop records of softroce-monitor (xdp/lab_records.h).

The file grows while the lab is up; what is read is what was there when it was opened. Times are
CLOCK_MONOTONIC, in nanoseconds.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.errors import RunError
from softroce_lab.structs import CONSTANTS, Struct, enumerators

_NUMBERS = enumerators("lab_effect")
EFFECTS = {_NUMBERS[name]: name for name in ("drop", "cut", "corrupt", "duplicate", "reorder")}
EFFECT_DROP, EFFECT_CORRUPT = _NUMBERS["drop"], _NUMBERS["corrupt"]
EFFECT_REORDER, EFFECT_DOWN = _NUMBERS["reorder"], _NUMBERS["down"]
EFFECT_CUT = _NUMBERS["cut"]

KIND_NONE: int = CONSTANTS["LAB_KIND_NONE"]  # a frame without the lab's header
_KINDS = enumerators("lab_kind")
PACKET_KINDS = (*sorted(_KINDS, key=_KINDS.__getitem__), "other")
"""By the number in a record; `other`: every number beyond."""

DROP = np.dtype(Struct("lab_drop").dtype)
Drops: TypeAlias = npt.NDArray[np.void]  # of dtype DROP

_HEADER = Struct("lab_file_header")


def packet_kind(number: int) -> str:
    """The kind of a packet in a word."""
    return PACKET_KINDS[min(number, len(PACKET_KINDS) - 1)]


def packet_kinds(numbers: npt.NDArray[np.uint8]) -> npt.NDArray[np.object_]:
    """The kinds of packets in words."""
    return np.array(PACKET_KINDS, dtype=object)[np.minimum(numbers, len(PACKET_KINDS) - 1)]


def addresses(numbers: npt.NDArray[np.uint32]) -> npt.NDArray[np.object_]:
    """`src` or `dst` of drops as text; rows of one address share it."""
    unique, where = np.unique(numbers, return_inverse=True)
    texts = [str(ipaddress.IPv4Address(number)) for number in unique.tolist()]
    return np.array(texts, dtype=object)[where]


def read_drops(path: Path, *, since_ns: int = 0, until_ns: int | None = None) -> Drops:
    """The drop records of since_ns <= time < until_ns, in the order of the ring buffer.

    RunError if the file is another one.
    """
    data = path.read_bytes()
    magic = CONSTANTS["LAB_DROPS_MAGIC"]
    header = _HEADER.pack(
        magic=magic.encode(), header_bytes=_HEADER.size, record_bytes=DROP.itemsize
    )
    if not data.startswith(header):
        raise RunError(f"{path} is not a file of this softroce-monitor's {magic} records")
    count = (len(data) - _HEADER.size) // DROP.itemsize
    records = np.frombuffer(data, DROP, count, _HEADER.size)
    wanted = records["time_ns"] >= since_ns
    if until_ns is not None:
        wanted &= records["time_ns"] < until_ns
    return records[wanted]
