# SPDX-License-Identifier: GPL-2.0-or-later
"""The connection manager of a host: ids, listeners, and which MAD is whose (IBA 12.9.8).

Sans-IO: every method returns the MADs and events to send, and `next_timeout_ns` is the time to call
`handle_timeout`. Ids are comm ids, unique among those that are open. It has no queue pairs; what
these are set to is in `qp_attributes`.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import errno
import heapq
import random
from collections.abc import Iterator, Mapping
from ipaddress import IPv6Address
from typing import TypeAlias

from softroce_lab.programs.rdmacm.connection import (
    ASKED,
    OVER,
    CmEvent,
    CmState,
    CmTiming,
    Connection,
    ConnParams,
    Outputs,
    PortIdentity,
    Request,
    Send,
    Way,
    rdma_cm_event_type,
)
from softroce_lab.programs.rdmacm.messages import (
    Address,
    Answered,
    Apr,
    ApStatus,
    Drep,
    Dreq,
    IpHeader,
    Lap,
    LayoutError,
    Mad,
    Mra,
    Rej,
    RejectReason,
    Rep,
    Req,
    Rtu,
    SidrRep,
    SidrReq,
    SidrStatus,
    TransportService,
    gid_of,
    rdma_port_space,
    service_id,
)
from softroce_lab.programs.rdmacm.sidr import Resolution, SidrState
from softroce_lab.verbs.pyverbs_error import PyverbsRDMAError

_DATAGRAM_SPACES = (rdma_port_space.RDMA_PS_UDP, rdma_port_space.RDMA_PS_IPOIB)

_PORTS = range(32768, 61000)  # ephemeral ones, as Linux has them

MOST_PENDING = 1024
"""Requests that wait at a listener at most, as in Linux's ucma."""


@dataclasses.dataclass(slots=True)
class Listener:
    """Who takes requests for a service."""

    comm_id: int
    service_id: int
    address: Address | None  # None: all of the host's
    transport_service: int | None  # None: UD
    backlog: int
    waiting: set[int] = dataclasses.field(default_factory=set)

    @property
    def is_full(self) -> bool:
        """Whether so many wait that no more are taken."""
        most = self.backlog if 0 < self.backlog < MOST_PENDING else MOST_PENDING
        return len(self.waiting) >= most


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """Why no listener takes a request, and the value to use instead (IBA table 109)."""

    reason: RejectReason
    info: bytes = b""


class Listeners:
    """All listeners of a host, whose ports are `ports`, by GID."""

    def __init__(self, ports: Mapping[IPv6Address, PortIdentity]) -> None:
        self._ports = ports
        self._listeners: dict[tuple[int, Address | None], Listener] = {}

    def add(self, listener: Listener) -> None:
        """EADDRNOTAVAIL, EADDRINUSE: the address is not local, or in use."""
        address = listener.address
        if address is not None and gid_of(address) not in self._ports:
            raise PyverbsRDMAError("Failed to listen", errno.EADDRNOTAVAIL)
        if (listener.service_id, address) in self._listeners:
            raise PyverbsRDMAError("Failed to listen", errno.EADDRINUSE)
        self._listeners[listener.service_id, address] = listener

    def remove(self, listener: Listener) -> None:
        """It takes no more requests."""
        del self._listeners[listener.service_id, listener.address]

    def for_connection(self, req: Req) -> Listener | Refused:
        """The listener that takes a REQ, or why none does."""
        try:
            listener = self._find(req)
        except LayoutError:
            return Refused(RejectReason.CONSUMER_DEFINED)
        if listener is None:
            return Refused(RejectReason.INVALID_SERVICE_ID)
        if req.transport_service != listener.transport_service:
            return Refused(RejectReason.INVALID_TRANSPORT_TYPE)
        port = self._ports.get(req.primary.remote_gid)
        if port is None:
            return Refused(RejectReason.INVALID_GID, next(iter(self._ports)).packed)
        if not 1 <= req.path_mtu <= port.active_mtu:
            return Refused(RejectReason.INVALID_MTU, bytes([port.active_mtu << 4]))
        return listener

    def for_datagrams(self, req: SidrReq) -> Listener | None:
        """Who takes a SIDR_REQ."""
        try:
            listener = self._find(req)
        except LayoutError:
            return None
        return listener if listener and listener.transport_service is None else None

    def _find(self, req: Req | SidrReq) -> Listener | None:
        address = IpHeader.parse(req.private_data).destination
        one = self._listeners.get((req.service_id, address))
        return one or self._listeners.get((req.service_id, None))


_Key: TypeAlias = tuple[IPv6Address, int, int]  # GID, CA GUID, number


class Peers:
    """Finds what a REQ or REP repeats, and what it makes stale."""

    def __init__(self) -> None:
        self._by_id: dict[_Key, int] = {}
        self._by_qpn: dict[_Key, int] = {}

    def with_id(self, gid: IPv6Address, guid: int, remote_id: int) -> int | None:
        """The local comm id of the connection with this comm id of the peer."""
        return self._by_id.get((gid, guid, remote_id))

    def with_qpn(self, gid: IPv6Address, guid: int, qpn: int) -> int | None:
        """The local comm id of the connection of this queue pair of a peer."""
        return self._by_qpn.get((gid, guid, qpn))

    def remember(self, connection: Connection) -> None:
        """Record the peer's comm id and queue pair."""
        gid, guid = connection.way.peer, connection.remote_guid
        self._by_id[gid, guid, connection.remote_id] = connection.comm_id
        self._by_qpn[gid, guid, connection.remote_qpn] = connection.comm_id

    def forget(self, connection: Connection) -> None:
        """The connection is over; nothing happens to those that have its numbers by now."""
        gid, guid = connection.way.peer, connection.remote_guid
        for table, number in (
            (self._by_id, connection.remote_id),
            (self._by_qpn, connection.remote_qpn),
        ):
            if table.get((gid, guid, number)) == connection.comm_id:
                del table[gid, guid, number]

    def __len__(self) -> int:
        return len(self._by_id) + len(self._by_qpn)


class Timers:
    """Times by id, and the earliest of them."""

    def __init__(self) -> None:
        self._due_ns: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []  # what is no more in `_due_ns` is void

    def set(self, comm_id: int, due_ns: int | None) -> None:
        """Set the timer of an id to this time; None: cancel it."""
        if due_ns is None:
            self._due_ns.pop(comm_id, None)
        elif self._due_ns.get(comm_id) != due_ns:
            self._due_ns[comm_id] = due_ns
            heapq.heappush(self._heap, (due_ns, comm_id))

    @property
    def next_ns(self) -> int | None:
        """The earliest time; None if there is none."""
        while self._heap and self._due_ns.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now_ns: int) -> int | None:
        """An id whose time has come; its time is over with that."""
        due_ns = self.next_ns
        if due_ns is None or due_ns > now_ns:
            return None
        comm_id = heapq.heappop(self._heap)[1]
        del self._due_ns[comm_id]
        return comm_id

    def __len__(self) -> int:
        return len(self._heap)


@contextlib.contextmanager
def _fitting(call: str) -> Iterator[None]:
    """EINVAL for what fits no MAD: private data too long, numbers too large."""
    try:
        yield
    except LayoutError as error:
        raise PyverbsRDMAError(f"Failed to {call}", errno.EINVAL, hint=str(error)) from error


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Where an id that does not listen goes."""

    source: Address
    source_port: int
    destination: Address
    port: int
    port_space: int
    path_mtu: int | None = None  # None: the port's
    flow_label: int = 0

    @property
    def way(self) -> Way:
        return Way(gid_of(self.source), gid_of(self.destination))


class ConnectionManager:
    """All connections of a host, whose ports are `ports`, by GID; more may be added.

    For `relisten_ns` after a listener ended, requests for its service are dropped and not refused:
    the peer repeats them, and may find the next listener. So are requests for a service that nobody
    has listened for, until `listener_due_ns`. Linux refuses all of them.
    """

    def __init__(
        self,
        ports: Mapping[IPv6Address, PortIdentity],
        stream: random.Random,
        timing: CmTiming | None = None,
        relisten_ns: int = 0,
    ) -> None:
        self.ports = dict(ports)
        self._relisten_ns = relisten_ns
        self.listener_due_ns = 0
        self._closed_until_ns: dict[int, int] = {}  # by service id
        self.timing = timing or CmTiming()
        self.dropped: collections.Counter[str] = collections.Counter()
        """Dropped MADs, by reason."""
        self._stream = stream
        self._next_id = stream.getrandbits(32)
        self._agent = stream.getrandbits(32)
        self._open: dict[int, Connection | Resolution | Listener | None] = {}
        self._targets: dict[int, Target] = {}
        self._bound: dict[int, tuple[int, int]] = {}  # port space and port
        self._listeners = Listeners(self.ports)
        self._peers = Peers()
        self._asked: dict[tuple[Way, int], int] = {}  # by SIDR request id
        self._timers = Timers()

    # What the user does

    def create(self) -> int:
        """A new id, which can do anything once."""
        while not self._next_id or self._next_id in self._open:
            self._next_id = (self._next_id + 1) & 0xFFFFFFFF
        comm_id = self._next_id
        self._next_id = (comm_id + 1) & 0xFFFFFFFF
        self._open[comm_id] = None
        return comm_id

    def bind(self, comm_id: int, port_space: int) -> int:
        """A port that no other id of the host has; EADDRNOTAVAIL if there is none."""
        self._must_be_new(comm_id, "bind")
        taken = {port for space, port in self._bound.values() if space == port_space}
        first = self._stream.randrange(len(_PORTS))
        port: int
        for port in (*_PORTS[first:], *_PORTS[:first]):
            if port not in taken:
                self._bound[comm_id] = port_space, port
                return port
        raise PyverbsRDMAError("Failed to bind", errno.EADDRNOTAVAIL)

    def resolve_addr(self, comm_id: int, target: Target) -> Outputs:
        """Where to connect; an address of the other IP version cannot be reached from here."""
        self._must_be_new(comm_id, "resolve address")
        if gid_of(target.source) not in self.ports:
            raise PyverbsRDMAError("Failed to resolve address", errno.ENODEV)
        if target.source.version != target.destination.version:
            failed = rdma_cm_event_type.RDMA_CM_EVENT_ADDR_ERROR
            return [CmEvent(failed, comm_id, -errno.EAFNOSUPPORT)]
        self._targets[comm_id] = target
        self._bound[comm_id] = target.port_space, target.source_port
        return [CmEvent(rdma_cm_event_type.RDMA_CM_EVENT_ADDR_RESOLVED, comm_id)]

    def resolve_route(self, comm_id: int) -> Outputs:
        """The lab's fabric has a route to every address."""
        self._target(comm_id, "resolve route")
        return [CmEvent(rdma_cm_event_type.RDMA_CM_EVENT_ROUTE_RESOLVED, comm_id)]

    def connect(
        self,
        comm_id: int,
        params: ConnParams,
        now_ns: int,
        timing: CmTiming | None = None,
        transport_service: int = TransportService.RC,
    ) -> Outputs:
        """Request a connection, or in a datagram port space a queue pair."""
        target, timing = self._target(comm_id, "connect"), timing or self.timing
        service = service_id(target.port_space, target.port)
        header = IpHeader(target.source_port, target.source, target.destination)
        with _fitting("connect"):
            if target.port_space in _DATAGRAM_SPACES:
                resolution = Resolution(comm_id, target.way, timing, self._tid(comm_id))
                private_data = header.build() + params.private_data
                outputs = resolution.ask(service, private_data, now_ns)
                return self._settle(resolution, outputs)
            connection = self._connection(comm_id, target.way, timing)
            most = connection.port.active_mtu
            mtu = min(target.path_mtu or most, most)
            label = target.flow_label or self._stream.getrandbits(20)
            request = Request(service, header, transport_service, mtu, label)
            return self._settle(connection, connection.connect(request, params, now_ns))

    def listen(
        self,
        comm_id: int,
        port_space: int,
        port: int,
        address: Address | None = None,
        backlog: int = 0,
        transport_service: int = TransportService.RC,
    ) -> None:
        """Take requests for a port, at one address or at all; EADDRINUSE if it is in use."""
        self._must_be_new(comm_id, "listen")
        service = service_id(port_space, port)
        kind = None if port_space in _DATAGRAM_SPACES else transport_service
        listener = Listener(comm_id, service, address, kind, backlog)
        self._listeners.add(listener)
        self._open[comm_id] = listener
        self._bound[comm_id] = port_space, port

    def accept(self, comm_id: int, params: ConnParams, now_ns: int, qkey: int = 0) -> Outputs:
        """Agree to a request; a UD queue pair of number `params.qp_num` is sent with its Q_Key."""
        held = self._open.get(comm_id)
        with _fitting("accept"):
            if isinstance(held, Resolution):
                qpn, private_data = params.qp_num, params.private_data
                outputs = held.answer(SidrStatus.SUCCESS, qpn, qkey, private_data)
            else:
                held = self._connected(comm_id, "accept")
                outputs = held.accept(params, now_ns)
        self._taken(held)
        return self._settle(held, outputs)

    def establish(self, comm_id: int, private_data: bytes = b"") -> Outputs:
        """Send RTU to a peer that accepted: the local queue pair is ready."""
        connection = self._connected(comm_id, "establish")
        with _fitting("establish"):
            return self._settle(connection, connection.establish(private_data))

    def reject(self, comm_id: int, now_ns: int, private_data: bytes = b"") -> Outputs:
        """Reject a request, or a reply to one."""
        held = self._open.get(comm_id)
        with _fitting("reject"):
            if isinstance(held, Resolution):
                outputs = held.answer(SidrStatus.REJECT, private_data=private_data)
            else:
                held = self._connected(comm_id, "reject")
                outputs = held.reject(now_ns, private_data)
        self._taken(held)
        return self._settle(held, outputs)

    def disconnect(self, comm_id: int, now_ns: int) -> Outputs:
        """End a connection, or agree to its end."""
        connection = self._connected(comm_id, "disconnect")
        return self._settle(connection, connection.disconnect(now_ns))

    def destroy(self, comm_id: int, now_ns: int) -> Outputs:
        """Destroy an id; the final message to its peer is sent once."""
        held = self._open.get(comm_id)
        outputs: Outputs = []
        if isinstance(held, Listener):
            self._listeners.remove(held)
            self._closed_until_ns[held.service_id] = now_ns + self._relisten_ns
            for waiting in self.waiting(comm_id):
                outputs += self.destroy(waiting, now_ns)
        elif isinstance(held, Connection):
            outputs = self._settle(held, held.abandon(now_ns))
            self._peers.forget(held)
        elif isinstance(held, Resolution):
            outputs = self._settle(held, held.abandon())
        if isinstance(held, (Connection, Resolution)):
            self._taken(held)
        self._open.pop(comm_id, None)
        self._targets.pop(comm_id, None)
        self._bound.pop(comm_id, None)
        self._timers.set(comm_id, None)
        return outputs

    def waiting(self, comm_id: int) -> tuple[int, ...]:
        """Pending requests at a listener, which end with it."""
        held = self._open.get(comm_id)
        return tuple(held.waiting) if isinstance(held, Listener) else ()

    def request(self, comm_id: int) -> Connection | Resolution | None:
        """What a peer's request made of an id; None if it is no request."""
        held = self._open.get(comm_id)
        return held if isinstance(held, (Connection, Resolution)) and held.header else None

    def connection(self, comm_id: int) -> Connection:
        """The connection of an id; EINVAL if it has none."""
        return self._connected(comm_id, "find the connection")

    # What the port and the clock do

    def handle_mad(self, octets: bytes, way: Way, now_ns: int) -> Outputs:
        """A MAD came to QP 1 of one of the ports; anything may be in it."""
        try:
            mad = Mad.parse(octets)
        except LayoutError:
            return self._drop("malformed")
        match mad.message:
            case Req():
                return self._on_req(mad, mad.message, way, now_ns)
            case SidrReq():
                return self._on_sidr_req(mad, mad.message, way, now_ns)
            case SidrRep():
                return self._on_sidr_rep(mad.message, way)
            case Rej():
                return self._on_rej(mad.message, way, now_ns)
            case Dreq():
                return self._on_dreq(mad, mad.message, way)
            case Lap():
                return self._on_lap(mad, mad.message, way)
            case Rep():
                return self._on_rep(mad, mad.message, way, now_ns)
            case Rtu() | Mra() | Drep():
                return self._on_known(mad.message, way, now_ns)
        return self._drop("unexpected APR")

    @property
    def next_timeout_ns(self) -> int | None:
        """When `handle_timeout` is to be called next; None: nothing is awaited."""
        return self._timers.next_ns

    def handle_timeout(self, now_ns: int) -> Outputs:
        """Do what is due."""
        outputs: Outputs = []
        while (comm_id := self._timers.take(now_ns)) is not None:
            held = self._open[comm_id]
            if isinstance(held, (Connection, Resolution)):
                outputs += self._settle(held, held.on_timeout(now_ns))
        return outputs

    # Messages

    def _on_req(self, mad: Mad, req: Req, way: Way, now_ns: int) -> Outputs:
        known = self._peers.with_id(way.peer, req.local_ca_guid, req.local_comm_id)
        if known is not None:
            connection = self.connection(known)
            return self._settle(connection, connection.on_duplicate_req())
        stale = self._peers.with_qpn(way.peer, req.local_ca_guid, req.local_qpn)
        if stale is not None:
            return self._stale(mad, way, stale, Answered.REQ, now_ns)
        listener = self._listeners.for_connection(req)
        if isinstance(listener, Refused):
            if self._awaits_listener(req.service_id, now_ns):
                return self._drop("nobody listens yet, or again")
            return self._refuse(mad, way, listener)
        if listener.is_full:
            return self._drop("backlog is full")  # a later REQ may find room
        connection = self._connection(self.create(), way, self.timing)
        connection.listen_id = listener.comm_id
        event = connection.requested(mad, req)
        listener.waiting.add(connection.comm_id)
        self._peers.remember(connection)
        return self._settle(connection, [event])

    def _on_sidr_req(self, mad: Mad, req: SidrReq, way: Way, now_ns: int) -> Outputs:
        if (way, req.request_id) in self._asked:
            return self._drop("duplicate SIDR_REQ")  # its response is in flight
        listener = self._listeners.for_datagrams(req)
        if listener is None:
            if self._awaits_listener(req.service_id, now_ns):
                return self._drop("nobody listens yet, or again")
            status = SidrStatus.UNSUPPORTED
            refusal = SidrRep(req.request_id, status, service_id=req.service_id)
            return [Send(way, Mad.of(mad.header.tid, refusal).build())]
        if listener.is_full:
            return self._drop("backlog is full")
        resolution = Resolution(self.create(), way, self.timing, 0, listen_id=listener.comm_id)
        event = resolution.asked(mad, req)
        listener.waiting.add(resolution.comm_id)
        self._asked[way, req.request_id] = resolution.comm_id
        return self._settle(resolution, [event])

    def _on_sidr_rep(self, rep: SidrRep, way: Way) -> Outputs:
        held = self._open.get(rep.request_id)
        if not isinstance(held, Resolution) or held.way != way:
            return self._drop("unmatched SIDR_REP")
        return self._settle(held, held.on_rep(rep))

    def _on_known(self, message: Rtu | Mra | Drep, way: Way, now_ns: int) -> Outputs:
        """A message that only a connection can be about."""
        early = isinstance(message, Mra) and message.answered == Answered.REQ
        remote_id = None if early else message.local_comm_id
        connection = self._matching(message.remote_comm_id, remote_id, way)
        if connection is None:
            return self._drop(f"unmatched {message.ATTRIBUTE.name}")
        match message:
            case Rtu():
                outputs = connection.on_rtu(message)
            case Mra():
                outputs = connection.on_mra(message, now_ns)
            case Drep():
                outputs = connection.on_drep(message, now_ns)
        return self._settle(connection, outputs)

    def _on_rep(self, mad: Mad, rep: Rep, way: Way, now_ns: int) -> Outputs:
        connection = self._matching(rep.remote_comm_id, None, way)
        if connection is None:
            return self._drop("unmatched REP")
        if connection.state not in ASKED:
            return self._settle(connection, connection.on_rep(rep))
        if self._peers.with_id(way.peer, rep.local_ca_guid, rep.local_comm_id) is not None:
            return self._drop("REP with a comm id in use")
        stale = self._peers.with_qpn(way.peer, rep.local_ca_guid, rep.local_qpn)
        if stale is not None:
            return self._stale(mad, way, stale, Answered.REP, now_ns)
        outputs = connection.on_rep(rep)
        self._peers.remember(connection)
        return self._settle(connection, outputs)

    def _on_rej(self, rej: Rej, way: Way, now_ns: int) -> Outputs:
        if rej.reason == RejectReason.TIMEOUT:
            guid = int.from_bytes(rej.info[:8])
            comm_id = self._peers.with_id(way.peer, guid, rej.local_comm_id) or 0
            connection = self._matching(comm_id, rej.local_comm_id, way)
        else:
            early = rej.answered == Answered.REQ
            remote_id = None if early else rej.local_comm_id
            connection = self._matching(rej.remote_comm_id, remote_id, way)
        if connection is None:
            return self._drop("unmatched REJ")
        return self._settle(connection, connection.on_rej(rej, now_ns))

    def _on_dreq(self, mad: Mad, dreq: Dreq, way: Way) -> Outputs:
        connection = self._matching(dreq.remote_comm_id, dreq.local_comm_id, way)
        if connection is None:  # forgotten here: let the peer get on
            answer = Drep(dreq.remote_comm_id, dreq.local_comm_id)
            return [Send(way, Mad.of(mad.header.tid, answer).build())]
        return self._settle(connection, connection.on_dreq(mad, dreq))

    def _on_lap(self, mad: Mad, lap: Lap, way: Way) -> Outputs:
        """RoCE has no alternate paths (annex A16.4.4)."""
        known = self._matching(lap.remote_comm_id, lap.local_comm_id, way)
        status = ApStatus.UNSUPPORTED if known else ApStatus.INVALID_COMM_ID
        answer = Apr(lap.remote_comm_id, lap.local_comm_id, ap_status=status)
        return [Send(way, Mad.of(mad.header.tid, answer).build())]

    # How

    def _awaits_listener(self, service: int, now_ns: int) -> bool:
        return now_ns < self._closed_until_ns.get(service, self.listener_due_ns)

    def _tid(self, comm_id: int) -> int:
        return self._agent << 32 | comm_id

    def _connection(self, comm_id: int, way: Way, timing: CmTiming) -> Connection:
        psn, port = self._stream.getrandbits(24), self.ports[way.local]
        return Connection(comm_id, way, port, timing, psn, self._tid(comm_id))

    def _connected(self, comm_id: int, call: str) -> Connection:
        held = self._open.get(comm_id)
        if not isinstance(held, Connection):
            raise PyverbsRDMAError(f"Failed to {call}", errno.EINVAL)
        return held

    def _must_be_new(self, comm_id: int, call: str) -> None:
        if self._open.get(comm_id, self) is not None:
            raise PyverbsRDMAError(f"Failed to {call}", errno.EINVAL)

    def _target(self, comm_id: int, call: str) -> Target:
        """The destination of a new id, from `resolve_addr`."""
        self._must_be_new(comm_id, call)
        target = self._targets.get(comm_id)
        if target is None:
            raise PyverbsRDMAError(f"Failed to {call}", errno.EINVAL, hint="no address is resolved")
        return target

    def _matching(self, comm_id: int, remote_id: int | None, way: Way) -> Connection | None:
        """The connection that a MAD is about; `remote_id` None: the peer had sent none yet."""
        held = self._open.get(comm_id)
        if not isinstance(held, Connection) or held.way != way:
            return None
        return held if remote_id in (None, held.remote_id) else None

    def _settle(self, held: Connection | Resolution, outputs: Outputs) -> Outputs:
        """Bring what is known of an id in line with the state that it is in now."""
        comm_id = held.comm_id
        self._open[comm_id] = held
        if isinstance(held, Connection) and held.state in OVER:
            self._peers.forget(held)
        if isinstance(held, Resolution) and held.state is SidrState.IDLE:
            self._asked.pop((held.way, held.request_id), None)
        self._timers.set(comm_id, held.due_ns)
        return outputs

    def _taken(self, held: Connection | Resolution) -> None:
        """The user has decided what becomes of a request: there is room for another."""
        listener = self._open.get(held.listen_id or 0)
        if isinstance(listener, Listener):
            listener.waiting.discard(held.comm_id)

    def _stale(self, mad: Mad, way: Way, comm_id: int, answered: Answered, now_ns: int) -> Outputs:
        """The peer reuses a queue pair of an existing connection: end that (IBA 12.9.8.3.1)."""
        connection = self.connection(comm_id)
        outputs = self._refuse(mad, way, Refused(RejectReason.STALE_CONN), answered)
        if connection.state is CmState.ESTABLISHED:
            outputs += self._settle(connection, connection.disconnect(now_ns))
        return outputs

    def _refuse(
        self, mad: Mad, way: Way, why: Refused, answered: Answered = Answered.REQ
    ) -> Outputs:
        message = mad.message
        assert isinstance(message, (Req, Rep))  # noqa: S101 - nothing else is refused so
        refusal = Rej(
            local_comm_id=message.remote_comm_id if isinstance(message, Rep) else 0,
            remote_comm_id=message.local_comm_id,
            answered=answered,
            info_length=len(why.info),
            reason=why.reason,
            info=why.info,
        )
        return [Send(way, Mad.of(mad.header.tid, refusal).build())]

    def _drop(self, why: str) -> Outputs:
        self.dropped[why] += 1
        return []
