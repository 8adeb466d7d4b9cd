# SPDX-License-Identifier: GPL-2.0-or-later
"""Numbers in words, as pyverbs has them."""

from __future__ import annotations

from softroce_lab.errors import ibv_wc_status
from softroce_lab.verbs.enums import ibv_event_type, ibv_mtu

_TYPES = {2: "RC", 3: "UC", 4: "UD", 8: "Raw Packet", 9: "XRCD_SEND", 10: "XRCD_RECV"}
_STATES = ("Reset", "Init", "RTR", "RTS", "SQD", "SQE", "Error", "Unknown")
_STATUSES = (
    "success", "local length error", "local QP op error", "local EEC op error",
    "local protection error", "WR flush error", "memory window bind error", "bad response error",
    "local access error", "remote invalid request error", "remote access error",
    "remote op error", "retry exceeded error", "RNR retry exceeded", "local RDD violation error",
    "remote invalid RD request error", "remote abort error", "invalid EECN error",
    "invalid EEC state error", "WC fatal error", "response timeout error", "general error",
)  # fmt: skip
_OPCODES = {
    0: "Send",
    1: "RDMA write",
    2: "RDMA read",
    3: "Compare and swap",
    4: "Fetch and add",
    5: "Bind Memory window",
    6: "Local invalidate",
    7: "TSO",
    128: "Receive",
    129: "Receive RDMA with immediate",
}
_WC_FLAGS = {1: "GRH", 2: "With immediate", 4: "IP csum OK", 8: "With invalidate"}
_ACCESS = {
    1: "Local write",
    2: "Remote write",
    4: "Remote read",
    8: "Remote atomic",
    16: "MW bind",
    32: "Zero based",
    64: "On demand",
}


def qp_type_to_str(qp_type: int) -> str:
    """The service of a queue pair."""
    return _TYPES.get(qp_type, f"Unknown ({qp_type})")


def qp_state_to_str(qp_state: int) -> str:
    """The state of a queue pair."""
    known = 0 <= qp_state < len(_STATES)
    return _STATES[qp_state] if known else f"Unknown ({qp_state})"


def mtu_to_str(mtu: int) -> int:
    """Bytes of an ibv_mtu; 0, if it is none."""
    return 128 << mtu if mtu in ibv_mtu.__members__.values() else 0


def access_flags_to_str(flags: int) -> str:
    """Rights, a blank after each."""
    return _flags(flags, _ACCESS)


def cqe_status_to_str(status: int) -> str:
    """How a work request ended."""
    return _STATUSES[status] if 0 <= status < len(_STATUSES) else "Unknown CQE status"


def wc_status_to_str(status: int) -> str:
    """How a work request ended, by its name in C."""
    known = status in ibv_wc_status.__members__.values()
    return ibv_wc_status(status).name if known else f"Unknown WC status ({status})"


def cqe_opcode_to_str(opcode: int) -> str:
    """What completed."""
    return _OPCODES.get(opcode, f"Unknown CQE opcode {opcode}")


def cqe_flags_to_str(flags: int) -> str:
    """What a completion carries, a blank after each."""
    return _flags(flags, _WC_FLAGS)


def event_type_to_str(event_type: int) -> str:
    """An asynchronous event, by its name in C."""
    known = event_type in ibv_event_type.__members__.values()
    return ibv_event_type(event_type).name if known else f"Unknown event ({event_type})"


def _flags(flags: int, names: dict[int, str]) -> str:
    return "".join(f"{name} " for flag, name in names.items() if flags & flag)
