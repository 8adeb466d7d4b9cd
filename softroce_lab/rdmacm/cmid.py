# SPDX-License-Identifier: GPL-2.0-or-later
"""RDMA CM in pyverbs' names, argument order and defaults: `CMID`, its event channel, its events.

A `CMID` made of an `AddrInfo` is synchronous: a call returns when what it began is done. One made
of a `CMEventChannel` is not: events report the result. As librdmacm does, a CMID with its own
queue pair brings that to RTR and RTS when the peer's REQ or REP arrives. Waits end after
`timeout_s`.
"""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable
from typing import Any, TypeVar

from softroce_lab.rdmacm.addrinfo import AddrInfo, ConnParam
from softroce_lab.rdmacm.agent import CmAgent
from softroce_lab.rdmacm.channel import WAIT_S, CMEvent, CMEventChannel
from softroce_lab.rdmacm.connection import Connection
from softroce_lab.rdmacm.events import CmEvent, ConnParams, Outputs, rdma_cm_event_type
from softroce_lab.rdmacm.manager import ConnectionManager, Target
from softroce_lab.rdmacm.messages import TransportService
from softroce_lab.rdmacm.qp_attributes import qp_attributes
from softroce_lab.rdmacm.qp_setup import connection_attributes, datagram_attributes
from softroce_lab.rdmacm.service import rdma_port_space
from softroce_lab.rdmacm.settings import CmTiming
from softroce_lab.rdmacm.sidr import UDP_QKEY
from softroce_lab.rnic.addr import AH
from softroce_lab.rnic.base import Closable, expect, expect_unsigned
from softroce_lab.rnic.cq import CQ, WC
from softroce_lab.rnic.device import Context
from softroce_lab.rnic.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_QP_ACCESS_FLAGS,
    IBV_QP_PKEY_INDEX,
    IBV_QP_PORT,
    IBV_QP_STATE,
    IBV_QPS_ERR,
    IBV_QPS_INIT,
    IBV_QPS_RTR,
    IBV_QPS_RTS,
    IBV_QPT_UC,
    IBV_QPT_UD,
    IBV_SEND_SIGNALED,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
    IBV_WR_SEND,
)
from softroce_lab.rnic.errors import PyverbsRDMAError, PyverbsUserError
from softroce_lab.rnic.mr import MR
from softroce_lab.rnic.pd import PD
from softroce_lab.rnic.qp import QP, QPAttr, QPCap, QPInitAttr
from softroce_lab.rnic.wr import SGE, RecvWR, SendWR

MOST_READS = 16
"""READs and atomics of a side that names no number; librdmacm takes the device's."""

RDMA_OPTION_ID = 0
RDMA_OPTION_ID_ACK_TIMEOUT = 3

Owned = TypeVar("Owned", bound=Closable)

_EVENT = rdma_cm_event_type
_DATAGRAM = (rdma_port_space.RDMA_PS_UDP, rdma_port_space.RDMA_PS_IPOIB)


class CMID(Closable):
    """A connection, or one who listens for them; with a queue pair of its own if it is given one.

    An active side is created of an AddrInfo with `dst`, or of a channel; a passive side of an
    AddrInfo with RAI_PASSIVE, or of a channel; its peers' requests of `get_request()`, or of
    the CMEvent and `listen_id`.
    """

    close_rank = -1

    def __init__(
        self,
        creator: AddrInfo | CMEventChannel | CMEvent | None = None,
        qp_init_attr: QPInitAttr | None = None,
        pd: PD | None = None,
        port_space: int = rdma_port_space.RDMA_PS_TCP,
        listen_id: CMID | None = None,
    ) -> None:
        self._agent: CmAgent | None = None
        self._comm_id = 0
        self._channel = CMEventChannel()
        self.event_channel: CMEventChannel | None = None
        self.port_space = _port_space(port_space)
        self.pd = pd
        self.qp: QP | None = None
        self.timeout_s = WAIT_S
        self._qp_init_attr = qp_init_attr
        self._info: AddrInfo | None = None
        self._asked = ConnParams(responder_resources=MOST_READS, initiator_depth=MOST_READS)
        self._ack_timeout: int | None = None
        self._owned: list[Closable] = []
        for name, value, kind in (
            ("qp_init_attr", qp_init_attr, QPInitAttr),
            ("pd", pd, PD),
            ("listen_id", listen_id, CMID),
        ):
            if value is not None:
                expect(name, value, kind)
        super().__init__()
        self._begin(creator, listen_id)

    def _begin(
        self, creator: AddrInfo | CMEventChannel | CMEvent | None, listen_id: CMID | None
    ) -> None:
        match creator:
            case None:
                return
            case AddrInfo():
                self._begin_synchronous(creator)
            case CMEventChannel():
                self.event_channel = self._channel = creator
            case CMEvent():
                if listen_id is None:
                    raise PyverbsUserError("listen ID not provided")
                if creator.event is None:
                    raise PyverbsUserError("the event was acknowledged already")
                self._adopt(creator.agent, creator.event, listen_id)
            case _:
                raise PyverbsUserError(f"Cannot create CM ID from {type(creator)}")

    def _begin_synchronous(self, info: AddrInfo) -> None:
        self.port_space = info.port_space
        if info.is_passive:
            self.bind_addr(info)
            return
        self.resolve_addr(info)
        self.resolve_route()
        if self._qp_init_attr is not None:
            self.create_qp(self._qp_init_attr)

    def _adopt(self, agent: CmAgent, event: CmEvent, listen_id: CMID) -> None:
        """Become the connection that a peer requested of a listener."""
        self.event_channel = listen_id.event_channel
        if listen_id.event_channel is not None:
            self._channel = listen_id.event_channel
        self.port_space = listen_id.port_space
        self.pd = listen_id.pd
        self._bind(agent, event.id)
        if event.conn is not None:
            self._asked = event.conn

    # Who it is

    @property
    def context(self) -> Context | None:
        """The device that the id is bound to."""
        return self._agent.context if self._agent else None

    @property
    def qpn(self) -> int | None:
        """Number of the queue pair that `create_qp` made."""
        return self.qp.qp_num if self.qp else None

    def bind_addr(self, lai: AddrInfo) -> None:
        """Take a local address, and with it a device."""
        expect("lai", lai, AddrInfo)
        if self._agent is not None:
            raise PyverbsRDMAError("Failed to Bind ID", errno.EINVAL)
        agent = CmAgent.at(lai.src)
        self._info = lai
        self._bind(agent, agent.create(self._channel.queue))

    def resolve_addr(self, rai: AddrInfo, timeout_ms: int = 2000) -> None:
        """Find the device that leads to an address."""
        expect("rai", rai, AddrInfo)
        if rai.dst is None:
            raise PyverbsRDMAError("Failed to Resolve Address", errno.EINVAL)
        if self._agent is None:
            agent = CmAgent.at(rai.src)
            self._bind(agent, agent.create(self._channel.queue))
        agent = self._bound("Resolve Address")
        target = Target(
            source=rai.src or agent.source_for(rai.dst),
            source_port=rai.src_port or agent.source_port(),
            destination=rai.dst,
            port=rai.dst_port,
            port_space=self.port_space,
        )
        self._call(lambda manager, _: manager.resolve_addr(self._comm_id, target))
        self._await(_EVENT.RDMA_CM_EVENT_ADDR_RESOLVED, "Resolve Address", timeout_ms / 1000)

    def resolve_route(self, timeout_ms: int = 2000) -> None:
        """Find the way to the address; in the lab every one has a way."""
        self._call(lambda manager, _: manager.resolve_route(self._comm_id), "Resolve Route")
        self._await(_EVENT.RDMA_CM_EVENT_ROUTE_RESOLVED, "Resolve Route", timeout_ms / 1000)

    def set_option(self, level: int, optname: int, optval: int, optlen: int) -> None:
        """Set RDMA_OPTION_ID_ACK_TIMEOUT: the code of the queue pair's timeout, in `optval`."""
        for name, value in (("optval", optval), ("optlen", optlen)):
            expect(name, value, int)
        if (level, optname) != (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT):
            raise PyverbsUserError("Only RDMA_OPTION_ID_ACK_TIMEOUT is supported")
        if optlen != 1 or not 0 <= optval < 32:
            raise PyverbsRDMAError("Failed to set option", errno.EINVAL)
        self._ack_timeout = optval

    # Connections

    def listen(self, backlog: int = 0) -> None:
        """Take requests at the address that is bound; `backlog` wait at most."""
        expect("backlog", backlog, int)
        self._bound("Listen")
        info = self._info
        if info is None:
            raise PyverbsRDMAError("Listen Failed", errno.EINVAL)
        address = None if info.src is None or info.src.is_unspecified else info.src
        transport = self._transport()

        def begin(manager: ConnectionManager, _: int) -> None:
            port = info.src_port
            manager.listen(self._comm_id, self.port_space, port, address, backlog, transport)

        self._call(begin)

    def get_request(self) -> CMID:
        """Wait for the next request; a CMID that is to accept or reject it."""
        if self.event_channel is not None:
            raise PyverbsRDMAError("Failed to get request", errno.EINVAL)
        request = CMID(port_space=self.port_space)
        agent, event = self._channel.queue.wait(self.timeout_s)
        while event.event != _EVENT.RDMA_CM_EVENT_CONNECT_REQUEST:  # of one that was never taken
            agent, event = self._channel.queue.wait(self.timeout_s)
        request._adopt(agent, event, self)
        if self._qp_init_attr is not None:
            request.create_qp(self._qp_init_attr)
        return request

    def connect(self, param: ConnParam | None = None) -> None:
        """Request a connection, or a datagram queue pair."""
        params = self._params(param)
        timing, transport = self._timing(), self._transport()
        self._call(
            lambda manager, now_ns: manager.connect(
                self._comm_id, params, now_ns, timing, transport
            ),
            "Connect",
        )
        self._await(_EVENT.RDMA_CM_EVENT_ESTABLISHED, "Connect")

    def accept(self, param: ConnParam | None = None) -> None:
        """Agree to a connection, or name a datagram queue pair."""
        params = self._params(param)
        if self.port_space in _DATAGRAM:
            self._call(
                lambda manager, now_ns: manager.accept(self._comm_id, params, now_ns, UDP_QKEY),
                "Accept",
            )
            return
        if self.qp is not None:
            self._to_rts(params)
        self._call(lambda manager, now_ns: manager.accept(self._comm_id, params, now_ns), "Accept")
        self._await(_EVENT.RDMA_CM_EVENT_ESTABLISHED, "Accept Connection")

    def establish(self) -> None:
        """Send RTU: the local queue pair is ready; for one that the CMID did not create."""
        if self.qp is not None:
            raise PyverbsRDMAError("Failed to Complete an active connection request", errno.EINVAL)
        self._call(lambda manager, _: manager.establish(self._comm_id), "Establish")

    def reject(self, private_data: bytes | None = None, private_data_len: int = 0) -> None:
        """Refuse a request."""
        expect("private_data_len", private_data_len, int)
        if private_data is not None:
            expect("private_data", private_data, bytes)
        data = (private_data or b"")[: private_data_len or None]
        self._call(lambda manager, now_ns: manager.reject(self._comm_id, now_ns, data), "Reject")

    def disconnect(self) -> None:
        """End the connection; the queue pair goes to the state of error."""
        if self.qp is not None:
            self._modify(QPAttr(), IBV_QPS_ERR, IBV_QP_STATE)
        self._hang_up()
        self._await(_EVENT.RDMA_CM_EVENT_DISCONNECTED, "Disconnect")
        if self.event_channel is None:
            self._hang_up()  # where both ended it at once, the peer waits for a DREP

    def _hang_up(self) -> None:
        self._call(lambda manager, now_ns: manager.disconnect(self._comm_id, now_ns), "Disconnect")

    # Queue pairs

    def create_qp(self, qp_init: QPInitAttr) -> None:
        """Make a queue pair for the connection, and completion queues if it has none."""
        expect("qp_init", qp_init, QPInitAttr)
        agent = self._bound("Create QP")
        if self.qp is not None:
            raise PyverbsRDMAError("Failed to Create QP", errno.EINVAL)
        if self.pd is None:
            self.pd = self._own(PD(agent.context))
        cap = qp_init.cap or QPCap()
        init = dataclasses.replace(
            qp_init,
            scq=qp_init.scq or self._own(CQ(agent.context, max(cap.max_send_wr, 1))),
            rcq=qp_init.rcq or self._own(CQ(agent.context, max(cap.max_recv_wr, 1))),
        )
        self.qp = self._own(QP(self.pd, init))
        if init.qp_type == IBV_QPT_UD:
            attr = QPAttr()
            attr.qkey = UDP_QKEY
            self.qp.to_rts(attr)
        else:
            mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS
            self._modify(QPAttr(), IBV_QPS_INIT, mask)

    def query_qp(self, attr_mask: int) -> tuple[QPAttr, QPInitAttr]:
        """(attributes, initial attributes) of the queue pair."""
        return self._queue_pair("query QP").query(attr_mask)

    def init_qp_attr(self, qp_state: int) -> tuple[QPAttr, int]:
        """(attributes, which of them) that bring a queue pair to a state, of one made elsewhere."""
        agent = self._bound("get QP attributes")
        if self.port_space in _DATAGRAM:
            return datagram_attributes(qp_state)
        known = qp_attributes(agent.connection(self._comm_id))
        return connection_attributes(known, qp_state, agent.source_index(known.remote_gid))

    def _to_rts(self, params: ConnParams | None = None) -> None:
        """INIT again with the access that the peer requires, RTR, RTS: as librdmacm does."""
        known = qp_attributes(self._connection())
        if params is not None:
            known = dataclasses.replace(
                known,
                max_dest_rd_atomic=params.responder_resources,
                max_rd_atomic=params.initiator_depth,
            )
        index = self._bound("modify QP").source_index(known.remote_gid)
        for state in (IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS):
            attr, mask = connection_attributes(known, state, index)
            self._modify(attr, state, mask)

    def _modify(self, attr: QPAttr, state: int, mask: int) -> None:
        attr.qp_state = state
        self._queue_pair("modify QP").modify(attr, mask)

    # Messages

    def reg_msgs(self, size: int) -> MR:
        """Memory to send from and receive into."""
        return self._register(size, IBV_ACCESS_LOCAL_WRITE)

    def reg_read(self, size: int = 0) -> MR:
        """Memory that the peer may READ."""
        return self._register(size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ)

    def reg_write(self, size: int = 0) -> MR:
        """Memory that the peer may WRITE."""
        return self._register(size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

    def _register(self, size: int, access: int) -> MR:
        if self.pd is None:
            self.pd = self._own(PD(self._bound("register memory").context))
        return MR(self.pd, size, access)

    def post_recv(self, mr: MR, length: int | None = None) -> None:
        """Post a receive of the first `length` bytes of a region; None: all of them."""
        expect("mr", mr, MR)
        element = SGE(mr.buf, length or mr.length, mr.lkey)
        self._queue_pair("Post Receive").post_recv(RecvWR(num_sge=1, sg=[element]))

    def post_send(self, mr: MR, flags: int = IBV_SEND_SIGNALED, length: int | None = None) -> None:
        """Send the first `length` bytes of a region; None: all of them."""
        self._post(mr, flags, length, IBV_WR_SEND, "Post Send")

    def post_read(self, mr: MR, length: int, remote_addr: int, rkey: int, flags: int = 0) -> None:
        """READ into a region."""
        self._post(
            mr, flags, length, IBV_WR_RDMA_READ, "Post Read",
            lambda request: request.set_wr_rdma(rkey, remote_addr),
        )  # fmt: skip

    def post_write(self, mr: MR, length: int, remote_addr: int, rkey: int, flags: int = 0) -> None:
        """WRITE from a region."""
        self._post(
            mr, flags, length, IBV_WR_RDMA_WRITE, "Post Write",
            lambda request: request.set_wr_rdma(rkey, remote_addr),
        )  # fmt: skip

    def post_ud_send(
        self,
        mr: MR,
        ah: AH,
        rqpn: int = 0,
        flags: int = IBV_SEND_SIGNALED,
        length: int | None = None,
    ) -> None:
        """Send a datagram."""
        self._post(
            mr, flags, length, IBV_WR_SEND, "Post Send",
            lambda request: request.set_wr_ud(ah, rqpn, UDP_QKEY),
        )  # fmt: skip

    def _post(
        self,
        mr: MR,
        flags: int,
        length: int | None,
        opcode: int,
        call: str,
        aim: Callable[[SendWR], Any] = lambda _: None,
    ) -> None:
        expect("mr", mr, MR)
        element = SGE(mr.buf, length or mr.length, mr.lkey)
        request = SendWR(opcode=opcode, num_sge=1, sg=[element], send_flags=flags)
        aim(request)
        self._queue_pair(call).post_send(request)

    def get_recv_comp(self) -> WC | None:
        """The next completion of a receive."""
        return self._next_completion(self._queue_pair("retrieve receive completion").rcq)

    def get_send_comp(self) -> WC | None:
        """The next completion of a send."""
        return self._next_completion(self._queue_pair("retrieve send completion").scq)

    def _next_completion(self, cq: CQ) -> WC:
        return self._bound("poll").poll_until(cq, self.timeout_s)

    # How

    def finish(self, event: CmEvent) -> CmEvent:
        """As librdmacm before it delivers an event: connect the CMID's own queue pair."""
        expect("event", event, CmEvent)
        if event.event != _EVENT.RDMA_CM_EVENT_CONNECT_RESPONSE or self.qp is None:
            return event
        try:
            self._to_rts()
            self._call(lambda manager, _: manager.establish(self._comm_id))
        except PyverbsRDMAError as error:
            self._call(lambda manager, now_ns: manager.reject(self._comm_id, now_ns))
            failed = _EVENT.RDMA_CM_EVENT_CONNECT_ERROR
            return dataclasses.replace(event, event=failed, status=-error.error_code)
        return dataclasses.replace(event, event=_EVENT.RDMA_CM_EVENT_ESTABLISHED)

    def _await(self, wanted: rdma_cm_event_type, call: str, timeout_s: float | None = None) -> None:
        """Of a synchronous id: wait for an event. ECONNREFUSED, ETIMEDOUT: it came otherwise."""
        if self.event_channel is not None:
            return
        _, event = self._channel.queue.wait(timeout_s or self.timeout_s)
        while event.event == _EVENT.RDMA_CM_EVENT_TIMEWAIT_EXIT:
            _, event = self._channel.queue.wait(timeout_s or self.timeout_s)
        event = self.finish(event)
        if event.event == wanted:
            return
        responded = event.event == _EVENT.RDMA_CM_EVENT_CONNECT_RESPONSE
        if responded and wanted == _EVENT.RDMA_CM_EVENT_ESTABLISHED:
            return  # the creator of the queue pair continues with establish()
        refused = event.event == _EVENT.RDMA_CM_EVENT_REJECTED or event.status > 0
        code = errno.ECONNREFUSED if refused else -event.status or errno.EINVAL
        hint = f"{event.event.name}, status {event.status}"
        raise PyverbsRDMAError(f"Failed to {call}", code, hint=hint)

    def _bind(self, agent: CmAgent, comm_id: int) -> None:
        self._agent, self._comm_id = agent, comm_id
        self._channel.ids[id(agent), comm_id] = self
        agent.move(comm_id, self._channel.queue)
        agent.adopt(self)

    def _bound(self, call: str) -> CmAgent:
        if self._agent is None or self.closed:
            raise PyverbsRDMAError(
                f"Failed to {call}", errno.EINVAL, hint="the CMID is bound to no device"
            )
        return self._agent

    def _call(
        self, work: Callable[[ConnectionManager, int], Outputs | None], call: str = "use CMID"
    ) -> None:
        self._bound(call).call(work)

    def _connection(self) -> Connection:
        return self._bound("find the connection").connection(self._comm_id)

    def _queue_pair(self, call: str) -> QP:
        if self.qp is None:
            raise PyverbsRDMAError(f"Failed to {call}", errno.EINVAL, hint="the CMID has no QP")
        return self.qp

    def _transport(self) -> TransportService:
        made = self.qp or self._qp_init_attr
        uc = made is not None and made.qp_type == IBV_QPT_UC
        return TransportService.UC if uc else TransportService.RC

    def _params(self, param: ConnParam | None) -> ConnParams:
        if param is not None:
            expect("param", param, ConnParam)
        asked = self._asked
        params = param.params if param else dataclasses.replace(asked, private_data=b"")
        if param is None:
            params = dataclasses.replace(params, retry_count=7, rnr_retry_count=7)
        if self.qp is not None:
            params = dataclasses.replace(params, qp_num=self.qp.qp_num)
        return params

    def _timing(self) -> CmTiming:
        timing = self._bound("Connect").manager.timing
        if self._ack_timeout is None:
            return timing
        return dataclasses.replace(timing, packet_life_time=max(self._ack_timeout - 1, 0))

    def _own(self, made: Owned) -> Owned:
        self._owned.append(made)
        return made

    def _release(self) -> None:
        if self._agent is not None:
            self._channel.ids.pop((id(self._agent), self._comm_id), None)
            self._agent.destroy(self._comm_id)
        while self._owned:
            self._owned.pop().close()


def _port_space(number: int) -> rdma_port_space:
    expect_unsigned("port_space", number, 32)
    if number not in set(rdma_port_space):
        raise PyverbsRDMAError("Failed to create CM ID", errno.EINVAL, hint="no such port space")
    return rdma_port_space(number)
