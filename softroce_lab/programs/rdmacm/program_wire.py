# SPDX-License-Identifier: GPL-2.0-or-later
"""What a program's librdmacm and the connection manager's process write to each other.

One message is one packet of a UNIX socket: a struct of native/endpoint/cm_wire.hpp.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Callable
from ipaddress import IPv6Address
from typing import Any, TypeAlias

from softroce_lab.programs.rdmacm.connection import QpAttributes
from softroce_lab.programs.rdmacm.events import ConnParams
from softroce_lab.structs import CONSTANTS, Struct

MOST_GIDS: int = CONSTANTS["cm::kMostGids"]
NO_ACK_TIMEOUT: int = CONSTANTS["cm::kNoAckTimeout"]

_KIND = struct.Struct("=I")  # that all of them begin with
_HELLO = Struct("cm::Hello")
_MAD = Struct("cm::Mad")
_PARAMETERS = Struct("cm::Parameters")
_CALL = Struct("cm::Call")
_REPLY = Struct("cm::Reply")
_EVENT = Struct("cm::Event")


class Kind(enum.IntEnum):
    """What a message is."""

    HELLO = 1
    MAD = 2
    CALL = 3
    REPLY = 4
    EVENT = 5


class Verb(enum.IntEnum):
    """What a call asks for."""

    CREATE = 1
    RESOLVE_ADDR = 2
    RESOLVE_ROUTE = 3
    LISTEN = 4
    CONNECT = 5
    ACCEPT = 6
    ESTABLISH = 7
    REJECT = 8
    DISCONNECT = 9
    DESTROY = 10
    ATTRIBUTES = 11
    FLUSH = 12


@dataclasses.dataclass(frozen=True, slots=True)
class Hello:
    """Whose port it is."""

    gids: tuple[IPv6Address, ...]
    guid: int
    mtu: int
    ack_delay: int


@dataclasses.dataclass(frozen=True, slots=True)
class MadMessage:
    """A MAD to, or from, queue pair 1 of the port with this GID."""

    gid: IPv6Address
    mad: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """What the program does with an id."""

    verb: Verb
    id: int
    port_space: int
    transport: int
    backlog: int
    source_port: int
    port: int
    ack_timeout: int | None
    source: IPv6Address
    destination: IPv6Address
    params: ConnParams
    qkey: int


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """What happened to an id. The port and the GIDs are a request's: where it came to, and from."""

    event: int
    id: int
    listen_id: int
    status: int
    is_datagram: bool
    peer_port: int
    local_gid: IPv6Address
    peer_gid: IPv6Address
    params: ConnParams
    qkey: int

    def build(self) -> bytes:
        """The message."""
        return _EVENT.pack(
            kind=Kind.EVENT,
            event=self.event,
            id=self.id,
            listen_id=self.listen_id,
            status=self.status,
            datagram=self.is_datagram,
            peer_port=self.peer_port,
            local_gid=self.local_gid.packed,
            peer_gid=self.peer_gid.packed,
            parameters=_parameters(self.params, self.qkey),
        )


Message: TypeAlias = Hello | MadMessage | Call


def parse(octets: bytes) -> Message:
    """A message of the program's. ValueError if it is none."""
    kind = _KIND.unpack_from(octets)[0] if len(octets) >= _KIND.size else 0
    if kind in _READERS:
        layout, read = _READERS[kind]
        if len(octets) == layout.size:
            return read(layout.unpack(octets))
    raise ValueError(f"{len(octets)} bytes of kind {kind} are no message")


def reply(error: int, comm_id: int = 0, attributes: QpAttributes | None = None) -> bytes:
    """The message that ends a call."""
    if attributes is None:
        return _REPLY.pack(kind=Kind.REPLY, error=error, id=comm_id)
    known = _fields(attributes)
    known["gid"] = known.pop("remote_gid").packed
    return _REPLY.pack(kind=Kind.REPLY, error=error, id=comm_id, **known)


def mad(gid: IPv6Address, octets: bytes) -> bytes:
    """The message that sends a MAD."""
    return _MAD.pack(kind=Kind.MAD, gid=gid.packed, octets=octets)


def is_mad(octets: bytes) -> bool:
    """Whether a message is one of `mad`."""
    return octets.startswith(_KIND.pack(Kind.MAD))


def _hello(hello: Any) -> Hello:
    if not 0 < hello.gids <= MOST_GIDS:
        raise ValueError(f"{hello.gids} GIDs")
    known = tuple(IPv6Address(hello.gid[16 * i : 16 * i + 16]) for i in range(hello.gids))
    return Hello(known, hello.guid, hello.mtu, hello.ack_delay)


def _mad(message: Any) -> MadMessage:
    return MadMessage(IPv6Address(message.gid), message.octets)


def _call(call: Any) -> Call:
    given = _PARAMETERS.unpack(call.parameters)
    params = {field.name: getattr(given, field.name) for field in dataclasses.fields(ConnParams)}
    params["private_data"] = given.private_data[: given.private_bytes]
    values = call._asdict() | {
        "verb": Verb(call.verb),
        "ack_timeout": None if call.ack_timeout == NO_ACK_TIMEOUT else call.ack_timeout,
        "source": IPv6Address(call.source),
        "destination": IPv6Address(call.destination),
        "params": ConnParams(**params),
        "qkey": given.qkey,
    }
    return Call(**{field.name: values[field.name] for field in dataclasses.fields(Call)})


def _parameters(params: ConnParams, qkey: int) -> bytes:
    """struct Parameters; no MAD has more private data than its length can say."""
    data = params.private_data[:255]
    values = _fields(params) | {"private_data": data, "private_bytes": len(data), "qkey": qkey}
    return _PARAMETERS.pack(**values)


def _fields(record: ConnParams | QpAttributes) -> dict[str, Any]:
    """Of a dataclass, which has the names of the struct's members."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


_READERS: dict[int, tuple[Struct, Callable[[Any], Message]]] = {
    Kind.HELLO: (_HELLO, _hello),
    Kind.MAD: (_MAD, _mad),
    Kind.CALL: (_CALL, _call),
}
