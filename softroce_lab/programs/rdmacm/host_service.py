# SPDX-License-Identifier: GPL-2.0-or-later
"""The connection manager of a host's programs, whose RNICs are in their own processes.

Sans-IO: messages of programs, MADs and times come in, messages to programs and MADs come out. Each
message is one packet of a UNIX socket: a struct of native/endpoint/cm_wire.hpp. The MADs that a
call causes leave before its reply. What a program destroyed, or left when it ended, is kept until
its peer knows that the connection is over: a lost DREQ would let the peer wait for ever.
"""

from __future__ import annotations

import dataclasses
import errno
import random
import struct
from collections.abc import Iterator
from ipaddress import IPv6Address
from typing import Any, TypeAlias

from softroce_lab.programs.rdmacm.connection import (
    LONGEST_WAIT,
    CmEvent,
    CmState,
    CmTiming,
    ConnParams,
    Outputs,
    PortIdentity,
    Send,
    Way,
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
LOCAL_GID = Struct("cm::LocalGid")
PARAMETERS = Struct("cm::Parameters")
CALL = Struct("cm::Call")
REPLY = Struct("cm::Reply")
EVENT = Struct("cm::Event")
_READ = {KINDS["hello"]: HELLO, KINDS["call"]: CALL}
_VERB_NAMES = {value: name for name, value in VERBS.items()}

_ANY = IPv6Address(0)
_BEFORE_THE_END = {CmState.ESTABLISHED, CmState.DREQ_RCVD}
_LINGERING = {CmState.DREQ_SENT, CmState.TIMEWAIT}
_NONE = ConnParams(responder_resources=0, initiator_depth=0)  # of an event without any

TIMING = CmTiming(response_timeout=18)  # a response is overdue after 1.1 s

RELISTEN_NS = 5_000_000_000
"""perftest's server with -R listens a second time, after an exchange over the first connection.

Its client crashes if it is refused meanwhile. A lost packet of that exchange costs half a second.
qperf's server tells its client to connect before it listens the first time.
"""

_NEVER_NS = 1 << 63


@dataclasses.dataclass(frozen=True, slots=True)
class ToProgram:
    """Send this message to the program with this number."""

    program: int
    message: bytes


Results: TypeAlias = list[ToProgram | Send]


def read(octets: bytes) -> Any:
    """A message of a program's, as its struct's record. ValueError if it is none."""
    kind = KIND.unpack_from(octets)[0] if len(octets) >= KIND.size else 0
    layout = _READ.get(kind)
    if layout is None or len(octets) != layout.size:
        raise ValueError(f"{len(octets)} bytes of kind {kind} are no message")
    return layout.unpack(octets)


def reply(error: int, comm_id: int = 0, **values: Any) -> bytes:
    """The message that ends a call."""
    return REPLY.pack(kind=KINDS["reply"], error=error, id=comm_id, **values)


def pack_parameters(params: ConnParams, qkey: int) -> bytes:
    """struct Parameters; no MAD has more private data than its length can say."""
    data = params.private_data[:255]
    values = dataclasses.asdict(params) | {
        "private_data": data,
        "private_bytes": len(data),
        "qkey": qkey,
    }
    return PARAMETERS.pack(**values)


class HostService:
    """Serves the programs of a host. Each has a number, which the caller gives it."""

    def __init__(self, stream: random.Random) -> None:
        self._manager = ConnectionManager({}, stream, TIMING, RELISTEN_NS)
        self._owners: dict[int, int] = {}  # the program of an id
        self._orphans: set[int] = set()  # ids that their programs destroyed, or left
        self._listener_due_ns: dict[int, int] = {}  # of programs
        self._await_listeners()

    def handle(self, program: int, octets: bytes, now_ns: int) -> Results:
        """A program's message. ValueError if it is none, or comes too early."""
        message = read(octets)
        if message.kind == KINDS["hello"]:
            self._manager.ports.update(_ports(message))
            self._listener_due_ns[program] = now_ns + RELISTEN_NS
            self._await_listeners()
            return []
        if program not in self._listener_due_ns:
            raise ValueError("a message before the hello")
        return self._answer(program, message, now_ns)

    def leave(self, program: int, now_ns: int) -> Results:
        """A program has ended: what it left open ends, as the kernel does for it."""
        self._listener_due_ns.pop(program, None)
        self._await_listeners()
        left = [comm_id for comm_id, owner in self._owners.items() if owner == program]
        outputs = [output for comm_id in left for output in self._destroy(comm_id, now_ns)]
        return self._results(outputs, now_ns)

    def handle_mad(self, octets: bytes, way: Way, now_ns: int) -> Results:
        """A MAD came to the host; anything may be in it."""
        if way.local not in self._manager.ports:
            return []
        return self._results(self._manager.handle_mad(octets, way, now_ns), now_ns)

    @property
    def next_timeout_ns(self) -> int | None:
        """When `handle_timeout` is to be called; None: nothing is awaited."""
        return self._manager.next_timeout_ns

    def handle_timeout(self, now_ns: int) -> Results:
        """Do what is due."""
        return self._results(self._manager.handle_timeout(now_ns), now_ns)

    @property
    def is_disconnecting(self) -> bool:
        """Whether a peer has not yet confirmed the end of a connection that nobody has any more."""
        return any(self._state(comm_id) is CmState.DREQ_SENT for comm_id in self._orphans)

    def _await_listeners(self) -> None:
        """Where no program is, nobody refuses a request."""
        due_ns = max(self._listener_due_ns.values(), default=_NEVER_NS)
        self._manager.listener_due_ns = due_ns

    # Calls

    def _answer(self, program: int, call: Any, now_ns: int) -> Results:
        verb = _VERB_NAMES.get(call.verb)
        if verb is None:
            raise ValueError(f"{call.verb} is no verb")
        if verb == "create":
            comm_id = self._manager.create()
            self._owners[comm_id] = program
            return [ToProgram(program, reply(0, comm_id))]
        values: dict[str, Any] = {}
        outputs: Outputs = []
        try:
            if self._owners.get(call.id) != program:
                raise PyverbsRDMAError(f"Failed to {verb}", errno.EINVAL)
            if verb == "attributes":
                values = qp_attributes(self._manager.connection(call.id))
            elif verb == "bind":
                values = {"port": self._manager.bind(call.id, call.port_space)}
            elif verb == "destroy":
                outputs = self._destroy(call.id, now_ns)
            else:
                outputs = self._call(verb, call, now_ns)
        except PyverbsRDMAError as error:
            return [ToProgram(program, reply(error.error_code or errno.EINVAL, call.id))]
        answer = ToProgram(program, reply(0, call.id, **values))
        return [*self._results(outputs, now_ns), answer]

    def _call(self, verb: str, call: Any, now_ns: int) -> Outputs:
        """What changes an id, or tells its peer something."""
        manager, comm_id = self._manager, call.id
        params, qkey = _parameters_of(call)
        match verb:
            case "resolve_addr":
                return manager.resolve_addr(comm_id, _target(call))
            case "resolve_route":
                return manager.resolve_route(comm_id)
            case "listen":
                source = IPv6Address(call.source)
                address = None if source == _ANY else address_of(source)
                space, port, transport = call.port_space, call.port, call.transport
                manager.listen(comm_id, space, port, address, call.backlog, transport)
                self._listener_due_ns[self._owners[comm_id]] = 0
                self._await_listeners()
            case "connect":
                timing = manager.timing
                if call.ack_timeout != NO_ACK_TIMEOUT:
                    life = max(min(call.ack_timeout, LONGEST_WAIT) - 1, 0)
                    timing = dataclasses.replace(timing, packet_life_time=life)
                return manager.connect(comm_id, params, now_ns, timing, call.transport)
            case "accept":
                return manager.accept(comm_id, params, now_ns, qkey)
            case "establish":
                return manager.establish(comm_id, params.private_data)
            case "reject":
                return manager.reject(comm_id, now_ns, params.private_data)
            case "disconnect":
                return manager.disconnect(comm_id, now_ns)
        return []

    def _destroy(self, comm_id: int, now_ns: int) -> Outputs:
        """Its program has it no more. Requests that wait at a listener end with it."""
        for each in (comm_id, *self._manager.waiting(comm_id)):
            self._owners.pop(each, None)
        is_open = self._state(comm_id) in _BEFORE_THE_END
        outputs = self._manager.disconnect(comm_id, now_ns) if is_open else []
        if self._state(comm_id) in _LINGERING:
            self._orphans.add(comm_id)
            return outputs
        return outputs + self._manager.destroy(comm_id, now_ns)

    def _state(self, comm_id: int) -> CmState | None:
        try:
            return self._manager.connection(comm_id).state
        except PyverbsRDMAError:
            return None

    # Results

    def _results(self, outputs: Outputs, now_ns: int) -> Results:
        return [result for output in outputs for result in self._result(output, now_ns)]

    def _result(self, output: CmEvent | Send, now_ns: int) -> Iterator[ToProgram | Send]:
        if isinstance(output, Send):
            yield output
        elif output.id in self._orphans:
            yield from self._end_of_orphan(output.id, now_ns)
        elif (program := self._owner(output)) is not None:
            yield ToProgram(program, self._event(output))

    def _owner(self, event: CmEvent) -> int | None:
        """The program that has the id of an event. A peer's request makes an id."""
        if event.id not in self._owners and event.listen_id in self._owners:
            self._owners[event.id] = self._owners[event.listen_id]
        return self._owners.get(event.id)

    def _end_of_orphan(self, comm_id: int, now_ns: int) -> Results:
        """Its peer knows, or never will. In time-wait it still answers repeated DREQs."""
        if self._state(comm_id) in _LINGERING:
            return []
        self._orphans.discard(comm_id)
        return self._results(self._manager.destroy(comm_id, now_ns), now_ns)

    def _event(self, event: CmEvent) -> bytes:
        """Port and GIDs are a request's: where it came to, and from."""
        request, ud = self._manager.request(event.id), event.ud
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


def _ports(hello: Any) -> dict[IPv6Address, PortIdentity]:
    if not 0 < hello.gids <= MOST_GIDS:
        raise ValueError(f"{hello.gids} GIDs")
    known = list(LOCAL_GID.unpack_all(hello.gid))[: hello.gids]
    return {
        IPv6Address(each.octets): PortIdentity(each.guid, each.mtu, each.ack_delay)
        for each in known
    }


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
