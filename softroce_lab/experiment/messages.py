# SPDX-License-Identifier: GPL-2.0-or-later
"""How messages ended: a record for each end, and a table with a row for each message.

On both clocks each host fills in a record for each of its sends and receives. After the run
`table` joins the records of both ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.errors import ibv_wc_status
from softroce_lab.workloads.message import Message
from softroce_lab.workloads.schedule import Receive, Schedule, Send

NOT_DONE = -1  # status: outstanding at the end of the run, or never posted
NEVER_NS = -1  # time: it did not happen, or is not known

END = np.dtype(
    [
        ("status", "i2"),  # an ibv_wc_status, or NOT_DONE
        ("packets", "u4"),
        ("retransmitted", "u4"),  # packets; 0 for a receive
        ("duplicates", "u4"),  # packets that had arrived before; 0 for a send
        ("posted_ns", "i8"),  # times since the run began
        ("first_ns", "i8"),  # when the first packet was sent, or arrived
        ("completed_ns", "i8"),
    ]
)
MESSAGE = np.dtype(
    [
        ("source", "u4"),  # hosts by their index among the plan's plain hosts
        ("destination", "u4"),
        ("operation", "u2"),
        ("step", "u2"),
        ("message", "u4"),
        ("bytes", "u8"),
        ("packets", "u4"),
        ("retransmitted", "u4"),
        ("duplicates", "u4"),
        ("status", "i2"),  # an ibv_wc_status, or NOT_DONE
        ("posted_ns", "i8"),
        ("first_sent_ns", "i8"),
        ("first_received_ns", "i8"),
        ("received_ns", "i8"),
        ("completed_ns", "i8"),
    ]
)
Ends: TypeAlias = npt.NDArray[Any]
"""Dtype END, a row for each vertex of a host's graph. Rows of computations stay as `open_ends`."""
Messages: TypeAlias = npt.NDArray[np.void]

_SUCCESS = int(ibv_wc_status.IBV_WC_SUCCESS)
_FLUSHED = int(ibv_wc_status.IBV_WC_WR_FLUSH_ERR)
_OPEN = (NOT_DONE, 0, 0, 0, NEVER_NS, NEVER_NS, NEVER_NS)


def open_ends(vertices: int) -> Ends:
    return np.full(vertices, np.array(_OPEN, dtype=END))


def table(schedule: Schedule, ends: Mapping[int, Ends] = MappingProxyType({})) -> Messages:
    """A row for each message, in the workload's order. `ends`: by host index; hosts may lack."""
    messages = schedule.messages
    rows = {id(message): row for row, message in enumerate(messages)}
    sent, received = open_ends(len(messages)), open_ends(len(messages))
    for host, host_ends in ends.items():
        vertices = schedule.of[host]
        for kind, joined in ((Send, sent), (Receive, received)):
            numbers = [number for number, each in enumerate(vertices) if isinstance(each, kind)]
            at = [rows[id(each.message)] for each in vertices if isinstance(each, kind)]
            joined[at] = host_ends[numbers]
    whole = _rows_before(messages)
    for name in ("packets", "retransmitted", "posted_ns", "completed_ns"):
        whole[name] = sent[name]
    whole["first_sent_ns"] = sent["first_ns"]
    whole["duplicates"] = received["duplicates"]
    arrived = received["status"] == _SUCCESS
    whole["first_received_ns"] = np.where(arrived, received["first_ns"], NEVER_NS)
    whole["received_ns"] = np.where(arrived, received["completed_ns"], NEVER_NS)
    # A send that was flushed or is not done has the status of its receive if that failed.
    followed = np.isin(sent["status"], (NOT_DONE, _FLUSHED)) & (received["status"] > _SUCCESS)
    whole["status"] = np.where(followed, received["status"], sent["status"])
    return whole


def _rows_before(messages: Iterable[Message]) -> Messages:
    rows = [(each.source, each.destination, *each.key, each.length_bytes) for each in messages]
    known_rows = np.zeros(len(rows), dtype=MESSAGE)
    known = list((MESSAGE.names or ())[:6])
    known_rows[known] = np.array(rows, dtype=[(name, MESSAGE[name]) for name in known])
    return known_rows
