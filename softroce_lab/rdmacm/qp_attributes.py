# SPDX-License-Identifier: GPL-2.0-or-later
"""What a connection sets its queue pair to, state by state (IBA 12.9.6, 12.9.7).

As Linux's ib_cm_init_qp_attr(): which attributes are valid depends on the state aimed at.
"""

from __future__ import annotations

import dataclasses
import errno
from ipaddress import IPv6Address

from softroce_lab.rdmacm.connection import ASKED, OVER, CmState, Connection
from softroce_lab.rdmacm.messages import TransportService
from softroce_lab.rnic.errors import PyverbsRDMAError


@dataclasses.dataclass(frozen=True, slots=True)
class QpAttributes:
    """Attributes of a queue pair of a connection, by their names in `struct ibv_qp_attr`."""

    reliable: bool
    remote_gid: IPv6Address
    flow_label: int
    traffic_class: int
    hop_limit: int
    path_mtu: int
    dest_qp_num: int
    rq_psn: int
    sq_psn: int
    max_dest_rd_atomic: int
    max_rd_atomic: int
    min_rnr_timer: int
    timeout: int
    retry_cnt: int
    rnr_retry: int

    @property
    def serves_reads(self) -> bool:
        """Whether the peer may READ and do atomics; it may WRITE always."""
        return self.max_dest_rd_atomic > 0


def knows_peer(connection: Connection) -> bool:
    """Whether the peer's queue pair is known: a REQ or REP of its has come, and holds."""
    return connection.state not in ASKED | OVER


def qp_attributes(connection: Connection) -> QpAttributes:
    """The attributes of a connection's queue pair; EINVAL before they are known."""
    if not knows_peer(connection) and connection.state is not CmState.TIMEWAIT:
        raise PyverbsRDMAError(
            "Failed to get QP attributes",
            errno.EINVAL,
            hint=f"the connection is in {connection.state.name}",
        )
    path = connection.path
    return QpAttributes(
        reliable=connection.transport_service == TransportService.RC,
        remote_gid=path.remote_gid,
        flow_label=path.flow_label,
        traffic_class=path.traffic_class,
        hop_limit=path.hop_limit,
        path_mtu=connection.path_mtu,
        dest_qp_num=connection.remote_qpn,
        rq_psn=connection.starting_psn,
        sq_psn=connection.remote_psn,
        max_dest_rd_atomic=connection.responder_resources,
        max_rd_atomic=connection.initiator_depth,
        min_rnr_timer=0,  # 655 ms, as Linux's CM has it
        timeout=connection.ack_timeout,
        retry_cnt=connection.retry_count,
        rnr_retry=connection.rnr_retry_count,
    )
