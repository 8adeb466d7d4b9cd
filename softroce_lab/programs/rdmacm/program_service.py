# SPDX-License-Identifier: GPL-2.0-or-later
"""The connection manager of a program whose RNIC is in its own process.

Sans-IO: messages of the program and times come in, messages to it come out. Each message is one
packet of a UNIX socket: a struct of native/endpoint/cm_wire.hpp. The MADs that a call causes leave
before its reply. What the program destroyed is kept until its peer knows that the connection is
over: a lost DREQ would let the peer wait for ever.
"""

from __future__ import annotations

import dataclasses
import errno
import random
import struct
from ipaddress import IPv6Address
from typing import Any

from softroce_lab.programs.rdmacm.connection import (
    CmEvent,
    CmState,
    CmTiming,
    ConnParams,
    Outputs,
    PortIdentity,
    Send,
    qp_attributes,
)
from softroce_lab.programs.rdmacm.manager import ConnectionManager, Target
from softroce_lab.programs.rdmacm.messages import address_of, gid_of
from softroce_lab.structs import CONSTANTS, Struct, enumerators
from softroce_lab.verbs.pyverbs_error import PyverbsRDMAError

KINDS = enumerators("cm::Kind")
VERBS = enumerators("cm::Verb")
MOST_GIDS: int = CONSTANTS["cm::kMostGids"]
NO_ACK_TIMEOUT: int = CONSTANTS["cm::kNoAckTimeout"]

KIND = struct.Struct("=I")  # that all messages begin with
HELLO = Struct("cm::Hello")
MAD = Struct("cm::Mad")
PARAMETERS = Struct("cm::Parameters")
CALL = Struct("cm::Call")
REPLY = Struct("cm::Reply")
EVENT = Struct("cm::Event")
_READ = {KINDS["hello"]: HELLO, KINDS["mad"]: MAD, KINDS["call"]: CALL}
_VERB_NAMES = {value: name for name, value in VERBS.items()}

_ANY = IPv6Address(0)
_BEFORE_THE_END = {CmState.ESTABLISHED, CmState.DREQ_RCVD}
_LINGERING = {CmState.DREQ_SENT, CmState.TIMEWAIT}
_NONE = ConnParams(responder_resources=0, initiator_depth=0)  # of an event without any

TIMING = CmTiming(response_timeout=18)
"""A response is overdue after 1.1 s: a program that ends waits for a few of these at most."""

RELISTEN_NS = 5_000_000_000
"""perftest's server with -R listens a second time, after an exchange over the first connection.

Its client crashes if it is refused meanwhile. A lost packet of that exchange costs half a second.
qperf's server tells its client to connect before it listens the first time.
"""


def read(octets: bytes) -> Any:
    """A message of the program's, as its struct's record. ValueError if it is none."""
    kind = KIND.unpack_from(octets)[0] if len(octets) >= KIND.size else 0
    layout = _READ.get(kind)
    if layout is None or len(octets) != layout.size:
        raise ValueError(f"{len(octets)} bytes of kind {kind} are no message")
    return layout.unpack(octets)


def reply(error: int, comm_id: int = 0, **attributes: Any) -> bytes:
    """The message that ends a call."""
    return REPLY.pack(kind=KINDS["reply"], error=error, id=comm_id, **attributes)


def pack_mad(gid: IPv6Address, octets: bytes) -> bytes:
    """The message that sends a MAD to, or from, queue pair 1 of the port with this GID."""
    return MAD.pack(kind=KINDS["mad"], gid=gid.packed, octets=octets)


def pack_parameters(params: ConnParams, qkey: int) -> bytes:
    """struct Parameters; no MAD has more private data than its length can say."""
    data = params.private_data[:255]
    values = dataclasses.asdict(params) | {
        "private_data": data,
        "private_bytes": len(data),
        "qkey": qkey,
    }
    return PARAMETERS.pack(**values)


class ProgramService:
    """Serves one program, from its hello on."""

    def __init__(self, stream: random.Random) -> None:
        self._stream = stream
        self._manager: ConnectionManager | None = None
        self._orphans: set[int] = set()  # ids that the program destroyed
        self._flushes = 0

    def handle(self, octets: bytes, now_ns: int) -> list[bytes]:
        """A message came: those to send. ValueError if it is none, or comes too early."""
        message = read(octets)
        if message.kind == KINDS["hello"]:
            self._manager = ConnectionManager(
                _identity(message), self._stream, TIMING, RELISTEN_NS, now_ns
            )
            return []
        if message.kind == KINDS["mad"]:
            outputs = self._known.handle_mad(message.octets, IPv6Address(message.gid), now_ns)
            return [*self._messages(outputs, now_ns), *self._flushed()]
        return [*self._answer(message, now_ns), *self._flushed()]

    def is_repeated(self, message: bytes) -> bool:
        """Whether this one to the program may be lost: who sent a MAD, or is to answer, repeats."""
        return message.startswith(KIND.pack(KINDS["mad"]))

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

    def _answer(self, call: Any, now_ns: int) -> list[bytes]:
        verb = _VERB_NAMES.get(call.verb)
        if verb is None:
            raise ValueError(f"{call.verb} is no verb")
        if verb == "flush":
            self._flushes += 1
            return self._messages(self._end_all(now_ns), now_ns)
        if verb == "create":
            return [reply(0, self._known.create())]
        try:
            if verb == "attributes":
                attributes = qp_attributes(self._known.connection(call.id))
                return [reply(0, call.id, **attributes)]
            if verb == "destroy":
                outputs = self._destroy(call.id, now_ns)
            else:
                outputs = self._call(verb, call, now_ns)
        except PyverbsRDMAError as error:
            return [reply(error.error_code or errno.EINVAL, call.id)]
        return [*self._messages(outputs, now_ns), reply(0, call.id)]

    def _call(self, verb: str, call: Any, now_ns: int) -> Outputs:
        """What changes an id, or tells its peer something."""
        known, comm_id = self._known, call.id
        params, qkey = _parameters_of(call)
        match verb:
            case "resolve_addr":
                return known.resolve_addr(comm_id, _target(call))
            case "resolve_route":
                return known.resolve_route(comm_id)
            case "listen":
                source = IPv6Address(call.source)
                address = None if source == _ANY else address_of(source)
                space, port, transport = call.port_space, call.port, call.transport
                known.listen(comm_id, space, port, address, call.backlog, transport)
            case "connect":
                timing = known.timing
                if call.ack_timeout != NO_ACK_TIMEOUT:
                    life = max(call.ack_timeout - 1, 0)
                    timing = dataclasses.replace(timing, packet_life_time=life)
                return known.connect(comm_id, params, now_ns, timing, call.transport)
            case "accept":
                return known.accept(comm_id, params, now_ns, qkey)
            case "establish":
                return known.establish(comm_id, params.private_data)
            case "reject":
                return known.reject(comm_id, now_ns, params.private_data)
            case "disconnect":
                return known.disconnect(comm_id, now_ns)
        return []

    def _destroy(self, comm_id: int, now_ns: int) -> Outputs:
        is_open = self._state(comm_id) in _BEFORE_THE_END
        outputs = self._known.disconnect(comm_id, now_ns) if is_open else []
        if self._state(comm_id) in _LINGERING:
            self._orphans.add(comm_id)
            return outputs
        return outputs + self._known.destroy(comm_id, now_ns)

    def _end_all(self, now_ns: int) -> Outputs:
        """The program ends: it destroys what it left open, as the kernel does for it."""
        states = _BEFORE_THE_END
        left = [comm_id for comm_id in self._known.ids if self._state(comm_id) in states]
        return [output for comm_id in left for output in self._destroy(comm_id, now_ns)]

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
                messages.append(pack_mad(output.gid, output.mad))
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
        """Port and GIDs are a request's: where it came to, and from."""
        request, ud = self._known.request(event.id), event.ud
        header = request.header if request else None
        params = event.conn or _NONE
        if ud is not None:
            params = ConnParams(ud.private_data, 0, 0, 0, 0, 0, qp_num=ud.qp_num)
        peer_gid = ud.gid if ud else gid_of(header.source) if header else _ANY
        return EVENT.pack(
            kind=KINDS["event"],
            event=event.event,
            id=event.id,
            listen_id=event.listen_id or 0,
            status=event.status,
            datagram=ud is not None,
            peer_port=header.port if header else 0,
            local_gid=(gid_of(header.destination) if header else _ANY).packed,
            peer_gid=peer_gid.packed,
            parameters=pack_parameters(params, ud.qkey if ud else 0),
        )

    def _flushed(self) -> list[bytes]:
        """Replies to those that wait until all peers know."""
        if not self._flushes or self._known.disconnecting:
            return []
        replies = [reply(0)] * self._flushes
        self._flushes = 0
        return replies


def _identity(hello: Any) -> PortIdentity:
    if not 0 < hello.gids <= MOST_GIDS:
        raise ValueError(f"{hello.gids} GIDs")
    gids = tuple(IPv6Address(hello.gid[16 * i : 16 * i + 16]) for i in range(hello.gids))
    return PortIdentity(gids, hello.guid, hello.mtu, hello.ack_delay)


def _target(call: Any) -> Target:
    return Target(
        source=address_of(IPv6Address(call.source)),
        source_port=call.source_port,
        destination=address_of(IPv6Address(call.destination)),
        port=call.port,
        port_space=call.port_space,
    )


def _parameters_of(call: Any) -> tuple[ConnParams, int]:
    given = PARAMETERS.unpack(call.parameters)
    params = {field.name: getattr(given, field.name) for field in dataclasses.fields(ConnParams)}
    params["private_data"] = given.private_data[: given.private_bytes]
    return ConnParams(**params), given.qkey
