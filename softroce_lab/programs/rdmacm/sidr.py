# SPDX-License-Identifier: GPL-2.0-or-later
"""Service id resolution (IBA 12.11): how a UD queue pair is found; there is no connection."""

from __future__ import annotations

import dataclasses
import enum
import errno

from softroce_lab.programs.rdmacm.connection import (
    CmEvent,
    CmTiming,
    Outputs,
    Repeat,
    Send,
    UdParams,
    Way,
    rdma_cm_event_type,
    time_ns,
)
from softroce_lab.programs.rdmacm.messages import (
    DEFAULT_PKEY,
    IP_HEADER_BYTES,
    IpHeader,
    Mad,
    SidrRep,
    SidrReq,
    SidrStatus,
)
from softroce_lab.verbs.pyverbs_error import PyverbsRDMAError


class SidrState(enum.Enum):
    """States of a resolution."""

    IDLE = enum.auto()
    REQ_SENT = enum.auto()
    REQ_RCVD = enum.auto()


@dataclasses.dataclass(slots=True)
class Resolution:
    """A resolution request, sent or received."""

    comm_id: int
    way: Way
    timing: CmTiming
    tid: int
    state: SidrState = SidrState.IDLE
    listen_id: int | None = None
    request_id: int = 0
    service_id: int = 0
    repeat: Repeat | None = None
    header: IpHeader | None = None  # of a request: who asks, and whom

    def ask(self, service_id: int, private_data: bytes, now_ns: int) -> Outputs:
        """Send a SIDR_REQ."""
        self._must_be(SidrState.IDLE, "connect")
        message = SidrReq(self.comm_id, DEFAULT_PKEY, service_id, private_data)
        mad = Mad.of(self.tid, message).build()
        self.state = SidrState.REQ_SENT
        self.service_id = service_id
        timeout_ns = time_ns(self.timing.response_timeout)
        due_ns = now_ns + timeout_ns
        self.repeat = Repeat(mad, timeout_ns, self.timing.max_cm_retries, due_ns)
        return [Send(self.way, mad)]

    def asked(self, mad: Mad, req: SidrReq) -> CmEvent:
        """A SIDR_REQ made this resolution."""
        self.state = SidrState.REQ_RCVD
        self.header = IpHeader.parse(req.private_data)
        self.tid = mad.header.tid
        self.request_id, self.service_id = req.request_id, req.service_id
        ud = UdParams(req.private_data[IP_HEADER_BYTES:], self.way.peer)
        return self._event(rdma_cm_event_type.RDMA_CM_EVENT_CONNECT_REQUEST, ud=ud)

    def answer(
        self, status: SidrStatus, qpn: int = 0, qkey: int = 0, private_data: bytes = b""
    ) -> Outputs:
        """Send a SIDR_REP; after a loss the peer sends a new SIDR_REQ."""
        self._must_be(SidrState.REQ_RCVD, "answer")
        message = SidrRep(
            request_id=self.request_id,
            status=status,
            qpn=qpn,
            service_id=self.service_id,
            qkey=qkey,
            private_data=private_data,
        )
        mad = Mad.of(self.tid, message).build()
        self.state = SidrState.IDLE
        return [Send(self.way, mad)]

    def abandon(self) -> Outputs:
        """The final message to a peer when the user destroys the resolution."""
        asked = self.state is SidrState.REQ_RCVD
        self.repeat = None
        return self.answer(SidrStatus.REJECT) if asked else []

    def on_rep(self, rep: SidrRep) -> Outputs:
        """Handle a response."""
        if self.state is not SidrState.REQ_SENT or rep.service_id not in (0, self.service_id):
            return []
        self.repeat = None
        self.state = SidrState.IDLE
        ud = UdParams(rep.private_data, self.way.peer, rep.qpn, rep.qkey)
        if rep.status == SidrStatus.SUCCESS:
            return [self._event(rdma_cm_event_type.RDMA_CM_EVENT_ESTABLISHED, ud=ud)]
        return [self._event(rdma_cm_event_type.RDMA_CM_EVENT_UNREACHABLE, rep.status, ud)]

    @property
    def due_ns(self) -> int | None:
        """When `on_timeout` is to be called."""
        return self.repeat.due_ns if self.repeat else None

    def on_timeout(self, now_ns: int) -> Outputs:
        """Retransmit, or give up."""
        if self.repeat is None:
            return []
        if self.repeat.left:
            self.repeat.left -= 1
            self.repeat.due_ns = now_ns + self.repeat.timeout_ns
            return [Send(self.way, self.repeat.mad)]
        self.repeat = None
        self.state = SidrState.IDLE
        unreachable = rdma_cm_event_type.RDMA_CM_EVENT_UNREACHABLE
        return [self._event(unreachable, -errno.ETIMEDOUT)]

    def _must_be(self, state: SidrState, call: str) -> None:
        if self.state is not state:
            raise PyverbsRDMAError(
                f"Failed to {call}", errno.EINVAL, hint=f"the resolution is in {self.state.name}"
            )

    def _event(
        self, event: rdma_cm_event_type, status: int = 0, ud: UdParams | None = None
    ) -> CmEvent:
        return CmEvent(event, self.comm_id, status, self.listen_id, ud=ud)
