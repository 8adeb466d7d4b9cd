# SPDX-License-Identifier: GPL-2.0-or-later
"""What a program's librdmacm and the connection manager's process write to each other.

One message is one packet of a UNIX socket. `native/verbs/rdmacm/wire.hpp` has the same structures.
Both ends are on one machine: numbers are in its order.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Callable
from ipaddress import IPv6Address
from typing import TypeAlias

from softroce_lab.rdmacm.events import ConnParams
from softroce_lab.rdmacm.qp_attributes import QpAttributes

MOST_GIDS = 4
NO_ACK_TIMEOUT = 0xFF

_KIND = struct.Struct("=I")
_HELLO = struct.Struct("=IIQBB6x64s")
_MAD = struct.Struct("=I16s256s")
_PARAMETERS = "7Bx2I256s"
_CALL = struct.Struct(f"=6I2HI16s16s{_PARAMETERS}")
_REPLY = struct.Struct("=IiII16s13I")
_EVENT = struct.Struct(f"=4IiIHxx16s16s{_PARAMETERS}")


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
            Kind.EVENT, self.event, self.id, self.listen_id, self.status, self.is_datagram,
            self.peer_port, self.local_gid.packed, self.peer_gid.packed,
            *_values(self.params, self.qkey),
        )  # fmt: skip


Message: TypeAlias = Hello | MadMessage | Call


def parse(octets: bytes) -> Message:
    """A message of the program's. ValueError if it is none."""
    kind = _KIND.unpack_from(octets)[0] if len(octets) >= _KIND.size else 0
    if kind in _READERS:
        layout, read = _READERS[kind]
        if len(octets) == layout.size:
            return read(layout.unpack(octets)[1:])
    raise ValueError(f"{len(octets)} bytes of kind {kind} are no message")


def reply(error: int, comm_id: int = 0, attributes: QpAttributes | None = None) -> bytes:
    """The message that ends a call."""
    if attributes is None:
        return _REPLY.pack(Kind.REPLY, error, comm_id, 0, bytes(16), *[0] * 13)
    known = attributes
    return _REPLY.pack(
        Kind.REPLY, error, comm_id, known.reliable, known.remote_gid.packed,
        known.flow_label, known.traffic_class, known.hop_limit, known.path_mtu,
        known.dest_qp_num, known.rq_psn, known.sq_psn, known.max_dest_rd_atomic,
        known.max_rd_atomic, known.min_rnr_timer, known.timeout, known.retry_cnt, known.rnr_retry,
    )  # fmt: skip


def mad(gid: IPv6Address, octets: bytes) -> bytes:
    """The message that sends a MAD."""
    return _MAD.pack(Kind.MAD, gid.packed, octets)


def is_mad(octets: bytes) -> bool:
    """Whether a message is one of `mad`."""
    return octets.startswith(_KIND.pack(Kind.MAD))


def _hello(values: tuple[int | bytes, ...]) -> Hello:
    count, guid, mtu, ack_delay, gids = values
    if not isinstance(gids, bytes) or not 0 < int(count) <= MOST_GIDS:
        raise ValueError(f"{count!r} GIDs")
    known = tuple(IPv6Address(gids[16 * i : 16 * i + 16]) for i in range(int(count)))
    return Hello(known, int(guid), int(mtu), int(ack_delay))


def _mad(values: tuple[int | bytes, ...]) -> MadMessage:
    return MadMessage(IPv6Address(values[0]), bytes(values[1]))


def _call(values: tuple[int | bytes, ...]) -> Call:
    verb, comm_id, space, transport, backlog, source_port, port, timeout = map(int, values[:8])
    *numbers, length, qp_num, qkey, data = values[10:]
    params = ConnParams(bytes(data)[: int(length)], *map(int, [*numbers, qp_num]))
    return Call(
        Verb(verb), comm_id, space, transport, backlog, source_port, port,
        None if timeout == NO_ACK_TIMEOUT else timeout,
        IPv6Address(values[8]), IPv6Address(values[9]), params, int(qkey),
    )  # fmt: skip


def _values(params: ConnParams, qkey: int) -> tuple[int | bytes, ...]:
    """As `_PARAMETERS` has them; no MAD has more private data than its length can say."""
    data = params.private_data[:255]
    numbers = (params.responder_resources, params.initiator_depth, params.flow_control)
    retries = (params.retry_count, params.rnr_retry_count, params.srq)
    return (*numbers, *retries, len(data), params.qp_num, qkey, data)


_READERS: dict[int, tuple[struct.Struct, Callable[[tuple[int | bytes, ...]], Message]]] = {
    Kind.HELLO: (_HELLO, _hello),
    Kind.MAD: (_MAD, _mad),
    Kind.CALL: (_CALL, _call),
}
