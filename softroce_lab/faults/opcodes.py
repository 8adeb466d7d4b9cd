# SPDX-License-Identifier: GPL-2.0-or-later
"""Opcodes of the Base Transport Header by their names: IBA 9.2.1, table 38, and annex A17's CNP.

The names are those of the Linux kernel's <rdma/ib_pack.h>.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

UD_SEND_ONLY = 0x64  # what carries the packets of striped messages
CNP = 0x81  # congestion notification, annex A17

_OPERATIONS = (
    "SEND_FIRST",
    "SEND_MIDDLE",
    "SEND_LAST",
    "SEND_LAST_WITH_IMMEDIATE",
    "SEND_ONLY",
    "SEND_ONLY_WITH_IMMEDIATE",
    "RDMA_WRITE_FIRST",
    "RDMA_WRITE_MIDDLE",
    "RDMA_WRITE_LAST",
    "RDMA_WRITE_LAST_WITH_IMMEDIATE",
    "RDMA_WRITE_ONLY",
    "RDMA_WRITE_ONLY_WITH_IMMEDIATE",
    "RDMA_READ_REQUEST",
    "RDMA_READ_RESPONSE_FIRST",
    "RDMA_READ_RESPONSE_MIDDLE",
    "RDMA_READ_RESPONSE_LAST",
    "RDMA_READ_RESPONSE_ONLY",
    "ACKNOWLEDGE",
    "ATOMIC_ACKNOWLEDGE",
    "COMPARE_SWAP",
    "FETCH_ADD",
    "RESYNC",
    "SEND_LAST_WITH_INVALIDATE",
    "SEND_ONLY_WITH_INVALIDATE",
)
_ALL = range(len(_OPERATIONS))
_RESYNC = _OPERATIONS.index("RESYNC")
_TRANSPORTS = {  # prefix: its first opcode, and the operations it has
    "RC": (0x00, [n for n in _ALL if n != _RESYNC]),
    "UC": (0x20, list(_ALL[:12])),
    "RD": (0x40, list(_ALL[: _RESYNC + 1])),
    "UD": (0x60, [4, 5]),
    "XRC": (0xA0, [n for n in _ALL if n != _RESYNC]),
}

OPCODES: Mapping[str, int] = MappingProxyType(
    {
        f"{transport}_{_OPERATIONS[number]}": first + number
        for transport, (first, numbers) in _TRANSPORTS.items()
        for number in numbers
    }
    | {"CNP": CNP}
)
_NAMES = {number: name for name, number in OPCODES.items()}


def opcode_name(opcode: int) -> str:
    return _NAMES.get(opcode, f"0x{opcode:02x}")
