# SPDX-License-Identifier: GPL-2.0-or-later
"""Outputs of the connection manager: events for its user as rdma_cm's, MADs for the port."""

from __future__ import annotations

import dataclasses
import enum
from ipaddress import IPv6Address
from typing import TypeAlias


class rdma_cm_event_type(enum.IntEnum):  # noqa: N801 - the C name, as pyverbs has it
    """Events of rdma_cma.h; those about multicast, devices and addresses do not occur here."""

    RDMA_CM_EVENT_ADDR_RESOLVED = 0
    RDMA_CM_EVENT_ADDR_ERROR = 1
    RDMA_CM_EVENT_ROUTE_RESOLVED = 2
    RDMA_CM_EVENT_ROUTE_ERROR = 3
    RDMA_CM_EVENT_CONNECT_REQUEST = 4
    RDMA_CM_EVENT_CONNECT_RESPONSE = 5
    RDMA_CM_EVENT_CONNECT_ERROR = 6
    RDMA_CM_EVENT_UNREACHABLE = 7
    RDMA_CM_EVENT_REJECTED = 8
    RDMA_CM_EVENT_ESTABLISHED = 9
    RDMA_CM_EVENT_DISCONNECTED = 10
    RDMA_CM_EVENT_DEVICE_REMOVAL = 11
    RDMA_CM_EVENT_MULTICAST_JOIN = 12
    RDMA_CM_EVENT_MULTICAST_ERROR = 13
    RDMA_CM_EVENT_ADDR_CHANGE = 14
    RDMA_CM_EVENT_TIMEWAIT_EXIT = 15


@dataclasses.dataclass(frozen=True, slots=True)
class ConnParams:
    """`struct rdma_conn_param`: of a call the request, of an event the peer's request.

    In an event `responder_resources` and `initiator_depth` are from the local point of view: how
    many READs and atomics of the peer this side serves, and how many the peer serves.
    """

    private_data: bytes = b""
    responder_resources: int = 1
    initiator_depth: int = 1
    flow_control: int = 0
    retry_count: int = 7
    rnr_retry_count: int = 7
    srq: int = 0
    qp_num: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class UdParams:
    """`struct rdma_ud_param`: how to reach a peer's UD queue pair."""

    private_data: bytes
    gid: IPv6Address
    qp_num: int = 0
    qkey: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class CmEvent:
    """Something happened to the id `id`.

    `status` is 0, a negative errno, or of REJECTED a `RejectReason`, of a refused SIDR request a
    `SidrStatus`. A CONNECT_REQUEST is of a new id, which the listening one, `listen_id`, made.
    """

    event: rdma_cm_event_type
    id: int
    status: int = 0
    listen_id: int | None = None
    conn: ConnParams | None = None
    ud: UdParams | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Send:
    """Send this MAD to QP 1 of the port with this GID."""

    gid: IPv6Address
    mad: bytes


Output: TypeAlias = CmEvent | Send
Outputs: TypeAlias = list[Output]
