# SPDX-License-Identifier: GPL-2.0-or-later
"""The connection manager of a program whose RNIC is in its own process.

Sans-IO: messages of the program and times come in, messages to it come out. The MADs that a call
causes leave before its reply. What the program destroyed is kept until its peer knows that the
connection is over: a lost DREQ would let the peer wait for ever.
"""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable
from ipaddress import IPv6Address

from softroce_lab.programs.rdmacm import program_wire
from softroce_lab.programs.rdmacm.connection import CmState, qp_attributes
from softroce_lab.programs.rdmacm.events import CmEvent, ConnParams, Outputs, Send
from softroce_lab.programs.rdmacm.manager import ConnectionManager, Target
from softroce_lab.programs.rdmacm.program_wire import Call, Hello, MadMessage, Verb
from softroce_lab.programs.rdmacm.service import address_of, gid_of
from softroce_lab.programs.rdmacm.settings import CmTiming, PortIdentity, Stream
from softroce_lab.verbs.pyverbs_error import PyverbsRDMAError

_ANY = IPv6Address(0)
_BEFORE_THE_END = {CmState.ESTABLISHED, CmState.DREQ_RCVD}
_LINGERING = {CmState.DREQ_SENT, CmState.TIMEWAIT}
_NONE = ConnParams(responder_resources=0, initiator_depth=0)  # of an event without any

TIMING = CmTiming(response_timeout=18)
"""A response is overdue after 1.1 s: a program that ends waits for a few of these at most."""

RELISTEN_NS = 5_000_000_000
"""perftest's server with -R listens a second time, after an exchange over the first connection.

Its client crashes if it is refused meanwhile. A lost packet of that exchange costs half a second.
"""


class ProgramService:
    """Serves one program, from its hello on."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._manager: ConnectionManager | None = None
        self._orphans: set[int] = set()  # ids that the program destroyed
        self._flushes = 0

    def handle(self, octets: bytes, now_ns: int) -> list[bytes]:
        """A message came: those to send. ValueError if it is none, or comes too early."""
        message = program_wire.parse(octets)
        if isinstance(message, Hello):
            identity = PortIdentity(message.gids, message.guid, message.mtu, message.ack_delay)
            self._manager = ConnectionManager(identity, self._stream, TIMING, RELISTEN_NS)
            return []
        if isinstance(message, MadMessage):
            outputs = self._known.handle_mad(message.mad, message.gid, now_ns)
            return [*self._messages(outputs, now_ns), *self._flushed()]
        return [*self._answer(message, now_ns), *self._flushed()]

    def is_repeated(self, message: bytes) -> bool:
        """Whether this one to the program may be lost: who sent a MAD, or is to answer, repeats."""
        return program_wire.is_mad(message)

    @property
    def next_timeout_ns(self) -> int | None:
        """When `handle_timeout` is to be called; None: nothing is awaited."""
        return self._manager.next_timeout_ns if self._manager else None

    def handle_timeout(self, now_ns: int) -> list[bytes]:
        """Do what is due."""
        if self._manager is None:
            return []
        outputs = self._manager.handle_timeout(now_ns)
        return [*self._messages(outputs, now_ns), *self._flushed()]

    @property
    def _known(self) -> ConnectionManager:
        """Since the hello."""
        if self._manager is None:
            raise ValueError("a message before the hello")
        return self._manager

    # Calls

    def _answer(self, call: Call, now_ns: int) -> list[bytes]:
        if call.verb is Verb.FLUSH:
            self._flushes += 1
            return []
        if call.verb is Verb.CREATE:
            return [program_wire.reply(0, self._known.create())]
        try:
            if call.verb is Verb.ATTRIBUTES:
                attributes = qp_attributes(self._known.connection(call.id))
                return [program_wire.reply(0, call.id, attributes)]
            outputs = _DEEDS[call.verb](self, call, now_ns)
        except PyverbsRDMAError as error:
            return [program_wire.reply(error.error_code or errno.EINVAL, call.id)]
        return [*self._messages(outputs, now_ns), program_wire.reply(0, call.id)]

    def _resolve_addr(self, call: Call, _: int) -> Outputs:
        target = Target(
            source=address_of(call.source),
            source_port=call.source_port,
            destination=address_of(call.destination),
            port=call.port,
            port_space=call.port_space,
        )
        return self._known.resolve_addr(call.id, target)

    def _resolve_route(self, call: Call, _: int) -> Outputs:
        return self._known.resolve_route(call.id)

    def _listen(self, call: Call, _: int) -> Outputs:
        address = None if call.source == _ANY else address_of(call.source)
        backlog, transport = call.backlog, call.transport
        self._known.listen(call.id, call.port_space, call.port, address, backlog, transport)
        return []

    def _connect(self, call: Call, now_ns: int) -> Outputs:
        timing = self._known.timing
        if call.ack_timeout is not None:
            timing = dataclasses.replace(timing, packet_life_time=max(call.ack_timeout - 1, 0))
        return self._known.connect(call.id, call.params, now_ns, timing, call.transport)

    def _accept(self, call: Call, now_ns: int) -> Outputs:
        return self._known.accept(call.id, call.params, now_ns, call.qkey)

    def _establish(self, call: Call, _: int) -> Outputs:
        return self._known.establish(call.id, call.params.private_data)

    def _reject(self, call: Call, now_ns: int) -> Outputs:
        return self._known.reject(call.id, now_ns, call.params.private_data)

    def _disconnect(self, call: Call, now_ns: int) -> Outputs:
        return self._known.disconnect(call.id, now_ns)

    def _destroy(self, call: Call, now_ns: int) -> Outputs:
        state = self._state(call.id)
        outputs = self._known.disconnect(call.id, now_ns) if state in _BEFORE_THE_END else []
        if self._state(call.id) in _LINGERING:
            self._orphans.add(call.id)
            return outputs
        return outputs + self._known.destroy(call.id, now_ns)

    def _state(self, comm_id: int) -> CmState | None:
        try:
            return self._known.connection(comm_id).state
        except PyverbsRDMAError:
            return None

    # Results

    def _messages(self, outputs: Outputs, now_ns: int) -> list[bytes]:
        messages = []
        for output in outputs:
            if isinstance(output, Send):
                messages.append(program_wire.mad(output.gid, output.mad))
            elif output.id in self._orphans:
                messages += self._end_of_orphan(output.id, now_ns)
            else:
                messages.append(self._event(output))
        return messages

    def _end_of_orphan(self, comm_id: int, now_ns: int) -> list[bytes]:
        """Its peer knows, or never will. In time-wait it still answers repeated DREQs."""
        if self._state(comm_id) in _LINGERING:
            return []
        self._orphans.discard(comm_id)
        return self._messages(self._known.destroy(comm_id, now_ns), now_ns)

    def _event(self, event: CmEvent) -> bytes:
        request = self._known.request(event.id)
        header = request.header if request else None
        return program_wire.Event(
            event=event.event,
            id=event.id,
            listen_id=event.listen_id or 0,
            status=event.status,
            is_datagram=event.ud is not None,
            peer_port=header.port if header else 0,
            local_gid=gid_of(header.destination) if header else _ANY,
            peer_gid=event.ud.gid if event.ud else gid_of(header.source) if header else _ANY,
            params=_params(event),
            qkey=event.ud.qkey if event.ud else 0,
        ).build()

    def _flushed(self) -> list[bytes]:
        """Replies to those that wait until all peers know."""
        if not self._flushes or self._known.disconnecting:
            return []
        replies = [program_wire.reply(0)] * self._flushes
        self._flushes = 0
        return replies


def _params(event: CmEvent) -> ConnParams:
    if event.ud is not None:
        data, number = event.ud.private_data, event.ud.qp_num
        return ConnParams(data, 0, 0, retry_count=0, rnr_retry_count=0, qp_num=number)
    return event.conn or _NONE


_DEEDS: dict[Verb, Callable[[ProgramService, Call, int], Outputs]] = {
    Verb.RESOLVE_ADDR: ProgramService._resolve_addr,
    Verb.RESOLVE_ROUTE: ProgramService._resolve_route,
    Verb.LISTEN: ProgramService._listen,
    Verb.CONNECT: ProgramService._connect,
    Verb.ACCEPT: ProgramService._accept,
    Verb.ESTABLISH: ProgramService._establish,
    Verb.REJECT: ProgramService._reject,
    Verb.DISCONNECT: ProgramService._disconnect,
    Verb.DESTROY: ProgramService._destroy,
}
