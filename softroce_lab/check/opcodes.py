# SPDX-License-Identifier: GPL-2.0-or-later
"""Opcodes of the connected services as tables: family, and place in a message (IBA 9.2.1)."""

from __future__ import annotations

import enum
from typing import Final

import numpy as np
import numpy.typing as npt

from softroce_lab.faults.opcodes import OPCODES

RC, UC, UD = 0, 1, 3  # the upper three bits
READ_REQUEST: Final = OPCODES["RC_RDMA_READ_REQUEST"]
ACKNOWLEDGE: Final = OPCODES["RC_ACKNOWLEDGE"]
ATOMIC_ACKNOWLEDGE: Final = OPCODES["RC_ATOMIC_ACKNOWLEDGE"]

# Syndromes of the AETH: three bits of kind, five of value (IBA 9.7.5.2.1).
ACK, RNR_NAK, NAK = KINDS = 0, 1, 3  # the other kinds are reserved
SEQUENCE_ERROR = 0  # code of a NAK; the others end the connection
UNLIMITED = 31  # credits of an ACK: none are counted
NAK_CODES = ("sequence error", "invalid request", "remote access error", "remote operational error")

_TENS_OF_US = (
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
)  # fmt: skip
RNR_NS = tuple(tens * 10_000 for tens in _TENS_OF_US)  # by code, IBA 9.7.5.2.8
CREDITS = (
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
)  # fmt: skip  # by code, IBA table 47


class Family(enum.IntEnum):
    """What a packet is part of."""

    NONE = 0
    SEND = 1
    WRITE = 2
    READ = 3
    ATOMIC = 4
    READ_RESPONSE = 5
    ACKNOWLEDGE = 6
    ATOMIC_RESPONSE = 7


def _family(name: str) -> Family:
    operation = name.partition("_")[2]
    if operation.startswith("RDMA_READ_RESPONSE"):
        return Family.READ_RESPONSE
    words = {
        "SEND": Family.SEND,
        "RDMA_WRITE": Family.WRITE,
        "RDMA_READ_REQUEST": Family.READ,
        "ACKNOWLEDGE": Family.ACKNOWLEDGE,
        "ATOMIC_ACKNOWLEDGE": Family.ATOMIC_RESPONSE,
        "COMPARE_SWAP": Family.ATOMIC,
        "FETCH_ADD": Family.ATOMIC,
    }
    return next((words[word] for word in words if operation.startswith(word)), Family.NONE)


def _table(of: dict[int, int]) -> npt.NDArray[np.uint8]:
    table = np.zeros(256, np.uint8)
    for opcode, value in of.items():
        table[opcode] = value
    return table


def _has(*words: str) -> dict[int, int]:
    return {opcode: any(f"{name}_".find(w) >= 0 for w in words) for name, opcode in _KNOWN.items()}


_KNOWN = {name: number for name, number in OPCODES.items() if number >> 5 in (RC, UC, UD)}

FAMILY = _table({opcode: _family(name) for name, opcode in _KNOWN.items()})
BEGINS = _table({o: not v for o, v in _has("_MIDDLE_", "_LAST_").items()}).astype(bool)
ENDS = _table({o: not v for o, v in _has("_FIRST_", "_MIDDLE_").items()}).astype(bool)
IS_RESPONSE = FAMILY >= Family.READ_RESPONSE
IMMEDIATE = _table(_has("_WITH_IMMEDIATE_")).astype(bool)
