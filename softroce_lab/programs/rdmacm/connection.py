# SPDX-License-Identifier: GPL-2.0-or-later
"""One connection's state machine (IBA 12.9), without clock, socket or randomness of its own.

States and responses are those of Linux's drivers/infiniband/core/cm.c, events those of cma.c. Each
method returns the MADs and events to send; `now_ns` is the time.
"""

from __future__ import annotations

import dataclasses
import enum
import errno
from ipaddress import IPv6Address
from typing import Any, TypeAlias

from softroce_lab.programs.rdmacm.messages import (
    DEFAULT_PKEY,
    IP_HEADER_BYTES,
    PERMISSIVE_LID,
    Answered,
    Drep,
    Dreq,
    IpHeader,
    Mad,
    Message,
    Mra,
    Path,
    Rej,
    RejectReason,
    Rep,
    Req,
    Rtu,
    TransportService,
)
from softroce_lab.verbs.pyverbs_error import PyverbsRDMAError

# --- What comes out ------------------------------------------------------------------------------


class rdma_cm_event_type(enum.IntEnum):  # noqa: N801 - the C name, as pyverbs has it
    """Events of rdma_cma.h, as far as they occur here."""

    RDMA_CM_EVENT_ADDR_RESOLVED = 0
    RDMA_CM_EVENT_ADDR_ERROR = 1
    RDMA_CM_EVENT_ROUTE_RESOLVED = 2
    RDMA_CM_EVENT_CONNECT_REQUEST = 4
    RDMA_CM_EVENT_CONNECT_RESPONSE = 5
    RDMA_CM_EVENT_UNREACHABLE = 7
    RDMA_CM_EVENT_REJECTED = 8
    RDMA_CM_EVENT_ESTABLISHED = 9
    RDMA_CM_EVENT_DISCONNECTED = 10
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
class Way:
    """Between which ports MADs go: the GID of the local one, and of the peer's."""

    local: IPv6Address
    peer: IPv6Address


@dataclasses.dataclass(frozen=True, slots=True)
class Send:
    """Send this MAD from QP 1 of the local port to QP 1 of the peer's."""

    way: Way
    mad: bytes


Output: TypeAlias = CmEvent | Send
Outputs: TypeAlias = list[Output]


# --- Times, and who we are ------------------------------------------------------------------------

LONGEST_WAIT = 24
"""Longest time, in the specification's code, that a peer may make us wait: 69 s.

The five bits of a MAD can request 2.4 hours. Linux requests no more than this in an MRA.
"""


def time_ns(code: int) -> int:
    """A time in the specification's code: 4.096 us x 2**code."""
    return 4096 << code


def peer_time_ns(code: int) -> int:
    """A time that a peer requested, bounded."""
    return time_ns(min(code, LONGEST_WAIT))


def ack_timeout(ack_delay: int, packet_life_time: int) -> int:
    """Code of the time after which an acknowledgement is overdue (IBA 12.7.34).

    It should be ack_delay + 2 x life time. Codes double, so Linux's cm_ack_timeout() takes the
    larger of the two and one more where they are close; so do we.
    """
    timeout = packet_life_time + 1
    if timeout >= ack_delay:
        timeout += ack_delay >= timeout - 1
    else:
        timeout = ack_delay + (timeout >= ack_delay - 1)
    return min(31, timeout)


@dataclasses.dataclass(frozen=True, slots=True)
class CmTiming:
    """Times in the specification's code, and how often a MAD is sent again.

    `response_timeout` and `max_cm_retries` are Linux's CMA_CM_RESPONSE_TIMEOUT (4.3 s) and
    CMA_MAX_CM_RETRIES; `packet_life_time` is its CMA_IBOE_PACKET_LIFETIME of kernels since 6.5.
    Linux's MRAs request 69 s: the loss of an RTU is then detected after this time.
    """

    response_timeout: int = 20
    max_cm_retries: int = 15
    packet_life_time: int = 16
    mra_timeout: int = 20


@dataclasses.dataclass(frozen=True, slots=True)
class PortIdentity:
    """A port's fields in a REQ or REP: its GUID and `active_mtu` (an enum ibv_mtu).

    `ack_delay` is rxe's: the code of how long an acknowledgement may take here.
    """

    ca_guid: int
    active_mtu: int = 3
    ack_delay: int = 15
    hop_limit: int = 64


# --- A connection --------------------------------------------------------------------------------

_MOST_RETRIES = 7  # of the three bits that REQ and REP have for either count


class CmState(enum.Enum):
    """States of a connection (IBA 12.9.5, 12.9.6); names as Linux's enum ib_cm_state."""

    IDLE = enum.auto()
    REQ_SENT = enum.auto()
    REQ_RCVD = enum.auto()
    MRA_REQ_SENT = enum.auto()
    MRA_REQ_RCVD = enum.auto()
    REP_SENT = enum.auto()
    REP_RCVD = enum.auto()
    MRA_REP_SENT = enum.auto()
    MRA_REP_RCVD = enum.auto()
    ESTABLISHED = enum.auto()
    DREQ_SENT = enum.auto()
    DREQ_RCVD = enum.auto()
    TIMEWAIT = enum.auto()


_S = CmState
ASKED = frozenset({_S.REQ_SENT, _S.MRA_REQ_RCVD})
"""A sent REQ is open."""
WAITING = frozenset({_S.REQ_RCVD, _S.MRA_REQ_SENT})
"""A received REQ waits for the local user."""
ANSWERED = frozenset({_S.REP_SENT, _S.MRA_REP_RCVD})
"""A sent REP is open."""
REPLIED = frozenset({_S.REP_RCVD, _S.MRA_REP_SENT})
"""A received REP waits for the local user."""
OVER = frozenset({_S.IDLE, _S.TIMEWAIT})


@dataclasses.dataclass(slots=True)
class Repeat:
    """A MAD that is retransmitted until its response arrives."""

    mad: bytes
    timeout_ns: int
    left: int
    due_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """Requests of an active side, in addition to `ConnParams`."""

    service_id: int
    header: IpHeader
    transport_service: int
    path_mtu: int
    flow_label: int = 0


@dataclasses.dataclass(slots=True)
class Connection:
    """A connection, or what is to become one; `comm_id` identifies it at this host."""

    comm_id: int
    way: Way
    port: PortIdentity  # the local one
    timing: CmTiming
    starting_psn: int  # that the peer is to begin with
    own_tid: int
    tid: int = 0  # of the transaction that is under way
    state: CmState = CmState.IDLE
    listen_id: int | None = None
    path: Path = dataclasses.field(default_factory=Path)  # from the local point of view
    remote_id: int = 0
    remote_guid: int = 0
    remote_qpn: int = 0
    remote_psn: int = 0  # that we are to begin with
    local_qpn: int = 0
    transport_service: int = 0
    path_mtu: int = 0
    responder_resources: int = 0
    initiator_depth: int = 0
    retry_count: int = 0
    rnr_retry_count: int = 0
    ack_timeout: int = 0
    answer_timeout_ns: int = 0
    retries: int = 0
    repeat: Repeat | None = None
    timewait_until_ns: int | None = None
    header: IpHeader | None = None  # of a request: who asks, and whom
    _repeatable: bytes = b""  # private data of an RTU or a DREP

    # What the user does

    def connect(self, request: Request, params: ConnParams, now_ns: int) -> Outputs:
        """Send a REQ."""
        self._must_be({_S.IDLE}, "connect")
        self.tid = self.own_tid
        self.path_mtu = request.path_mtu
        self.transport_service = request.transport_service
        self._take_params(params)
        life = self.timing.packet_life_time
        self.ack_timeout = ack_timeout(self.port.ack_delay, life)
        self.path = self._path(request)
        self.retries = self.timing.max_cm_retries
        self.answer_timeout_ns = 2 * time_ns(life) + time_ns(self.timing.response_timeout)
        message = self._request(request, params)
        return self._send_with_timer(message, _S.REQ_SENT, now_ns)

    def accept(self, params: ConnParams, now_ns: int) -> Outputs:
        """Send a REP."""
        self._must_be(WAITING, "accept")
        self._take_params(params, keep_retries=True)
        message = Rep(
            local_comm_id=self.comm_id,
            remote_comm_id=self.remote_id,
            local_qpn=self.local_qpn,
            starting_psn=self.starting_psn,
            responder_resources=self.responder_resources,
            initiator_depth=self.initiator_depth,
            target_ack_delay=self.port.ack_delay,
            flow_control=params.flow_control,
            rnr_retry_count=min(params.rnr_retry_count, _MOST_RETRIES),
            srq=params.srq,
            local_ca_guid=self.port.ca_guid,
            private_data=params.private_data,
        )
        return self._send_with_timer(message, _S.REP_SENT, now_ns)

    def establish(self, private_data: bytes = b"") -> Outputs:
        """Send an RTU: the queue pair is ready for what the peer sends."""
        self._must_be(REPLIED, "establish")
        outputs = self._send(Rtu(self.comm_id, self.remote_id, private_data))
        self.state = _S.ESTABLISHED
        self._repeatable = private_data
        return outputs

    def reject(
        self,
        now_ns: int,
        private_data: bytes = b"",
        reason: RejectReason = RejectReason.CONSUMER_DEFINED,
        info: bytes = b"",
    ) -> Outputs:
        """Send a REJ: as the response, or to withdraw a REQ or REP."""
        self._must_be(ASKED | WAITING | ANSWERED | REPLIED, "reject")
        # To a peer that has received no message, the comm id is 0 (IBA 12.6.7.1).
        message = Rej(
            local_comm_id=0 if self.state is _S.REQ_RCVD else self.comm_id,
            remote_comm_id=self.remote_id,
            answered=self._rejected(),
            info_length=len(info),
            reason=reason,
            info=info,
            private_data=private_data,
        )
        outputs = self._send(message)
        self._end(now_ns, wait=self.state in ANSWERED)
        return outputs

    def disconnect(self, now_ns: int, private_data: bytes = b"") -> Outputs:
        """Send a DREQ, or the DREP for the peer's; nothing if either was sent."""
        if self.state in {_S.DREQ_SENT, _S.TIMEWAIT}:
            return []
        self._must_be({_S.ESTABLISHED, _S.DREQ_RCVD}, "disconnect")
        if self.state is _S.DREQ_RCVD:
            self._repeatable = private_data
            self._end(now_ns, wait=True)
            return self._drep()
        message = Dreq(
            local_comm_id=self.comm_id,
            remote_comm_id=self.remote_id,
            remote_qpn=self.remote_qpn,
            private_data=private_data,
        )
        self.tid = self.own_tid
        return self._send_with_timer(message, _S.DREQ_SENT, now_ns)

    def abandon(self, now_ns: int) -> Outputs:
        """The final message to a peer when the user destroys the connection, not retransmitted."""
        if self.state in ASKED:
            return self._give_up(now_ns)
        if self.state in WAITING | ANSWERED | REPLIED:
            return self.reject(now_ns)
        if self.state in {_S.ESTABLISHED, _S.DREQ_RCVD}:
            return self.disconnect(now_ns)
        return []

    # What the peer sends

    def requested(self, mad: Mad, req: Req) -> CmEvent:
        """A REQ made this connection."""
        self.state = _S.REQ_RCVD
        self.header = IpHeader.parse(req.private_data)
        self.tid = mad.header.tid
        self.remote_id, self.remote_guid = req.local_comm_id, req.local_ca_guid
        self.remote_qpn, self.remote_psn = req.local_qpn, req.starting_psn
        self.transport_service = req.transport_service
        self.path_mtu = req.path_mtu
        # Its READs are what we respond to, and the reverse (IBA 12.7.29, 12.7.30).
        self.responder_resources = req.initiator_depth
        self.initiator_depth = req.responder_resources
        self.retry_count, self.rnr_retry_count = req.retry_count, req.rnr_retry_count
        self.retries = req.max_cm_retries
        self.answer_timeout_ns = peer_time_ns(req.local_cm_response_timeout)
        self.ack_timeout = req.primary.local_ack_timeout
        self.path = dataclasses.replace(
            req.primary,
            local_gid=req.primary.remote_gid,
            remote_gid=req.primary.local_gid,
            hop_limit=self.port.hop_limit,
        )
        return self._event(rdma_cm_event_type.RDMA_CM_EVENT_CONNECT_REQUEST, conn=_asked(req))

    def on_duplicate_req(self) -> Outputs:
        """The same REQ again: the user has not decided, or the open REP will be retransmitted."""
        if self.state in WAITING:
            self.state = _S.MRA_REQ_SENT
            return self._mra(Answered.REQ)
        return []

    def on_rep(self, rep: Rep) -> Outputs:
        """A reply; the response to the same one is sent again."""
        if self.state in ASKED:
            return self._replied(rep)
        if rep.local_comm_id != self.remote_id:
            return []
        if self.state is _S.ESTABLISHED:
            return self._send(Rtu(self.comm_id, self.remote_id, self._repeatable))
        if self.state in REPLIED:
            self.state = _S.MRA_REP_SENT
            return self._mra(Answered.REP)
        return []

    def on_rtu(self, rtu: Rtu) -> Outputs:
        """The peer is ready."""
        if self.state not in ANSWERED:
            return []
        self.repeat = None
        self.state = _S.ESTABLISHED
        conn = ConnParams(private_data=rtu.private_data)
        return [self._event(rdma_cm_event_type.RDMA_CM_EVENT_ESTABLISHED, conn=conn)]

    def on_mra(self, mra: Mra, now_ns: int) -> Outputs:
        """The response to the open message takes longer."""
        if self.repeat is None:
            return []
        if self.state is _S.REQ_SENT and mra.answered == Answered.REQ:
            self.state = _S.MRA_REQ_RCVD
        elif self.state is _S.REP_SENT and mra.answered == Answered.REP:
            self.state = _S.MRA_REP_RCVD
        else:
            return []
        wait_ns = peer_time_ns(mra.service_timeout) + peer_time_ns(self.ack_timeout)
        self.repeat.timeout_ns = wait_ns
        self.repeat.due_ns = now_ns + wait_ns
        return []

    def on_rej(self, rej: Rej, now_ns: int) -> Outputs:
        """The peer rejects, or has given up."""
        if self.state in OVER | {_S.DREQ_RCVD}:
            return []
        early = self.state in ASKED | ANSWERED | WAITING
        self._end(now_ns, wait=not early or rej.reason == RejectReason.STALE_CONN)
        conn = ConnParams(private_data=rej.private_data)
        return [self._event(rdma_cm_event_type.RDMA_CM_EVENT_REJECTED, rej.reason, conn=conn)]

    def on_dreq(self, mad: Mad, dreq: Dreq) -> Outputs:
        """The peer ends the connection; the response to the same request is sent again."""
        if dreq.remote_qpn != self.local_qpn:
            return []
        if self.state is _S.TIMEWAIT:
            self.tid = mad.header.tid
            return self._drep()
        if self.state not in ANSWERED | {_S.ESTABLISHED, _S.DREQ_SENT}:
            return []
        self.repeat = None
        self.state = _S.DREQ_RCVD
        self.tid = mad.header.tid
        return [self._disconnected(dreq.private_data)]

    def on_drep(self, drep: Drep, now_ns: int) -> Outputs:
        """The peer agrees that the connection is over."""
        if self.state is not _S.DREQ_SENT:
            return []
        self._end(now_ns, wait=True)
        return [self._disconnected(drep.private_data)]

    # What the clock does

    @property
    def due_ns(self) -> int | None:
        """When `on_timeout` is to be called."""
        return self.repeat.due_ns if self.repeat else self.timewait_until_ns

    def on_timeout(self, now_ns: int) -> Outputs:
        """Send again what is overdue, or give up; leave time-wait."""
        if self.state is _S.TIMEWAIT:
            self.state = _S.IDLE
            self.timewait_until_ns = None
            return [self._event(rdma_cm_event_type.RDMA_CM_EVENT_TIMEWAIT_EXIT)]
        if self.repeat is None:
            return []
        if self.repeat.left:
            self.repeat.left -= 1
            self.repeat.due_ns = now_ns + self.repeat.timeout_ns
            return [Send(self.way, self.repeat.mad)]
        if self.state is _S.DREQ_SENT:
            self._end(now_ns, wait=True)
            return [self._disconnected(b"", -errno.ETIMEDOUT)]
        return [
            *self._give_up(now_ns),
            self._event(rdma_cm_event_type.RDMA_CM_EVENT_UNREACHABLE, -errno.ETIMEDOUT),
        ]

    # How

    def _must_be(self, states: set[CmState] | frozenset[CmState], call: str) -> None:
        if self.state not in states:
            raise PyverbsRDMAError(
                f"Failed to {call}", errno.EINVAL, hint=f"the connection is in {self.state.name}"
            )

    def _take_params(self, params: ConnParams, keep_retries: bool = False) -> None:
        self.local_qpn = params.qp_num
        self.responder_resources = params.responder_resources
        self.initiator_depth = params.initiator_depth
        if not keep_retries:  # those of a passive side are in the REQ
            self.retry_count = min(params.retry_count, _MOST_RETRIES)

    def _path(self, request: Request) -> Path:
        return Path(
            local_lid=PERMISSIVE_LID,
            remote_lid=PERMISSIVE_LID,
            local_gid=self.way.local,
            remote_gid=self.way.peer,
            flow_label=request.flow_label,
            hop_limit=self.port.hop_limit,
            local_ack_timeout=self.ack_timeout,
        )

    def _request(self, request: Request, params: ConnParams) -> Req:
        return Req(
            local_comm_id=self.comm_id,
            service_id=request.service_id,
            local_ca_guid=self.port.ca_guid,
            local_qpn=self.local_qpn,
            responder_resources=self.responder_resources,
            initiator_depth=self.initiator_depth,
            remote_cm_response_timeout=self.timing.response_timeout,
            transport_service=request.transport_service,
            flow_control=params.flow_control,
            starting_psn=self.starting_psn,
            local_cm_response_timeout=self.timing.response_timeout,
            retry_count=self.retry_count,
            partition_key=DEFAULT_PKEY,
            path_mtu=request.path_mtu,
            rnr_retry_count=min(params.rnr_retry_count, _MOST_RETRIES),
            max_cm_retries=self.timing.max_cm_retries,
            srq=params.srq,
            primary=self.path,
            private_data=request.header.build() + params.private_data,
        )

    def _replied(self, rep: Rep) -> Outputs:
        self.repeat = None
        self.state = _S.REP_RCVD
        self.remote_id, self.remote_guid = rep.local_comm_id, rep.local_ca_guid
        self.remote_qpn, self.remote_psn = rep.local_qpn, rep.starting_psn
        self.responder_resources = rep.initiator_depth
        self.initiator_depth = rep.responder_resources
        self.rnr_retry_count = rep.rnr_retry_count
        self.ack_timeout = ack_timeout(rep.target_ack_delay, self.timing.packet_life_time)
        conn = ConnParams(
            private_data=rep.private_data,
            responder_resources=self.responder_resources,
            initiator_depth=self.initiator_depth,
            flow_control=rep.flow_control,
            rnr_retry_count=rep.rnr_retry_count,
            srq=rep.srq,
            qp_num=rep.local_qpn,
        )
        return [self._event(rdma_cm_event_type.RDMA_CM_EVENT_CONNECT_RESPONSE, conn=conn)]

    def _rejected(self) -> Answered:
        if self.state in WAITING:
            return Answered.REQ
        return Answered.REP if self.state in REPLIED else Answered.OTHER

    def _give_up(self, now_ns: int) -> Outputs:
        """Withdraw a REQ or REP; the peer finds it by the sender's GUID (IBA 12.6.7.2)."""
        guid = self.port.ca_guid.to_bytes(8)
        return self.reject(now_ns, reason=RejectReason.TIMEOUT, info=guid)

    def _end(self, now_ns: int, *, wait: bool) -> None:
        """Over: at once, or when nothing of the connection is under way any more (IBA 12.9.8.4)."""
        self.repeat = None
        self.state = _S.TIMEWAIT if wait else _S.IDLE
        self.timewait_until_ns = now_ns + peer_time_ns(self.ack_timeout) if wait else None

    def _send_with_timer(self, message: Message, state: CmState, now_ns: int) -> Outputs:
        mad = Mad.of(self.tid, message).build()
        self.state = state
        due_ns = now_ns + self.answer_timeout_ns
        self.repeat = Repeat(mad, self.answer_timeout_ns, self.retries, due_ns)
        return [Send(self.way, mad)]

    def _send(self, message: Message) -> Outputs:
        return [Send(self.way, Mad.of(self.tid, message).build())]

    def _drep(self) -> Outputs:
        return self._send(Drep(self.comm_id, self.remote_id, self._repeatable))

    def _mra(self, answered: Answered) -> Outputs:
        timeout = self.timing.mra_timeout
        return self._send(Mra(self.comm_id, self.remote_id, answered, timeout))

    def _disconnected(self, private_data: bytes, status: int = 0) -> CmEvent:
        conn = ConnParams(private_data=private_data)
        return self._event(rdma_cm_event_type.RDMA_CM_EVENT_DISCONNECTED, status, conn=conn)

    def _event(
        self, event: rdma_cm_event_type, status: int = 0, conn: ConnParams | None = None
    ) -> CmEvent:
        return CmEvent(event, self.comm_id, status, self.listen_id, conn)


def _asked(req: Req) -> ConnParams:
    return ConnParams(
        private_data=req.private_data[IP_HEADER_BYTES:],
        responder_resources=req.initiator_depth,
        initiator_depth=req.responder_resources,
        flow_control=req.flow_control,
        retry_count=req.retry_count,
        rnr_retry_count=req.rnr_retry_count,
        srq=req.srq,
        qp_num=req.local_qpn,
    )


def qp_attributes(connection: Connection) -> dict[str, Any]:
    """The attributes of a connection's queue pair, as `cm::Reply` names them.

    EINVAL before they are known.
    They are set state by state (IBA 12.9.6, 12.9.7), as Linux's ib_cm_init_qp_attr() does.
    """
    is_unknown = connection.state in ASKED | OVER  # no REQ or REP of the peer's has come
    if is_unknown and connection.state is not CmState.TIMEWAIT:
        raise PyverbsRDMAError(
            "Failed to get QP attributes",
            errno.EINVAL,
            hint=f"the connection is in {connection.state.name}",
        )
    path = connection.path
    return {
        "reliable": connection.transport_service == TransportService.RC,
        "gid": path.remote_gid.packed,
        "flow_label": path.flow_label,
        "traffic_class": path.traffic_class,
        "hop_limit": path.hop_limit,
        "path_mtu": connection.path_mtu,
        "dest_qp_num": connection.remote_qpn,
        "rq_psn": connection.starting_psn,
        "sq_psn": connection.remote_psn,
        "max_dest_rd_atomic": connection.responder_resources,
        "max_rd_atomic": connection.initiator_depth,
        "min_rnr_timer": 0,  # 655 ms, as Linux's CM has it
        "timeout": connection.ack_timeout,
        "retry_cnt": connection.retry_count,
        "rnr_retry": connection.rnr_retry_count,
    }
