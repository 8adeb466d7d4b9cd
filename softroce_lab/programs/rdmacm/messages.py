# SPDX-License-Identifier: GPL-2.0-or-later
"""MADs of the communication manager: the common header (IBA 13.4.3) and messages (IBA 12.6).

Offsets are those of the specification's tables, from the end of the 24-octet header; so they are
in Linux's include/rdma/ibta_vol1_c12.h. A record is a frozen dataclass whose fields carry their
offsets. Bytes and bits count from the most significant, as in the tables. What no field covers is
reserved: sent as zero, ignored on receipt. So `build(parse(octets))` is `octets` with the reserved
bits cleared, and `parse(build(record))` is `record`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from typing import Any, ClassVar, Self, TypeAlias

MAD_BYTES = 256
HEADER_BYTES = 24
BODY_BYTES = MAD_BYTES - HEADER_BYTES

GSI_QPN = 1
GSI_QKEY = 0x80010000
"""Q_Key of QP 1 (IBA 10.2.5)."""
DEFAULT_PKEY = 0xFFFF
PERMISSIVE_LID = 0xFFFF
"""In place of LIDs, which RoCE has not (annex A16.4.3)."""
NO_GID = IPv6Address(0)

_BASE_VERSION = 1
_CLASS_CM = 0x07
_CLASS_VERSION = 2
_METHOD_SEND = 0x03


# --- Records ------------------------------------------------------------------------------------


class LayoutError(ValueError):
    """A value does not fit its field, or the octets are not as many as the record has."""


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a field lies, and how its integer becomes the value."""

    byte: int
    bit: int
    width: int
    of_int: Callable[[int], Any]
    to_int: Callable[[Any], int]


def _same(value: int) -> int:
    return value


def at(byte: int, width: int, bit: int = 0, default: int = 0) -> Any:
    """A number of `width` bits that begins `bit` bits into octet `byte`."""
    place = Place(byte, bit, width, _same, int)
    return dataclasses.field(default=default, metadata={"place": place})


def gid_at(byte: int) -> dict[str, Place]:
    """Metadata of a field that is a GID."""
    return {"place": Place(byte, 0, 128, IPv6Address, int)}


def data_at(byte: int, length: int) -> Any:
    """`length` octets; shorter data is followed by zeros, as the MAD is."""
    place = Place(byte, 0, 8 * length, lambda value: value.to_bytes(length), int.from_bytes)
    return dataclasses.field(default=bytes(length), metadata={"place": place, "pad": length})


def record_at(byte: int, kind: type[Record]) -> dict[str, Place]:
    """Metadata of a field that is a record within the record."""
    size = kind.SIZE_BYTES
    place = Place(
        byte,
        0,
        8 * size,
        lambda value: kind.parse(value.to_bytes(size)),
        lambda record: int.from_bytes(record.build()),
    )
    return {"place": place}


@dataclasses.dataclass(frozen=True)
class Record:
    """Base of all records."""

    SIZE_BYTES: ClassVar[int]
    _places: ClassVar[tuple[tuple[str, int, int, Place], ...]]

    @classmethod
    def _fields(cls) -> tuple[tuple[str, int, int, Place], ...]:
        """Name, shift from the right, mask and place of every field; found out once."""
        if "_places" not in cls.__dict__:
            places = [(field.name, field.metadata["place"]) for field in dataclasses.fields(cls)]
            cls._places = tuple(
                (
                    name,
                    8 * (cls.SIZE_BYTES - place.byte) - place.bit - place.width,
                    (1 << place.width) - 1,
                    place,
                )
                for name, place in places
            )
        return cls._places

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if length := field.metadata.get("pad"):
                data = getattr(self, field.name)
                if len(data) > length:
                    raise LayoutError(f"{field.name}: {len(data)} bytes, {length} fit")
                object.__setattr__(self, field.name, bytes(data).ljust(length, b"\0"))

    def build(self) -> bytes:
        """The octets; LayoutError if a value is wider than its field."""
        whole = 0
        for name, shift, mask, place in self._fields():
            value = place.to_int(getattr(self, name))
            if not 0 <= value <= mask:
                raise LayoutError(f"{name}: {value:#x} does not fit {place.width} bits")
            whole |= value << shift
        return whole.to_bytes(self.SIZE_BYTES)

    @classmethod
    def parse(cls, octets: bytes) -> Self:
        """The record in `octets`; LayoutError if their number is not the record's."""
        if len(octets) != cls.SIZE_BYTES:
            raise LayoutError(f"{cls.__name__}: {len(octets)} bytes, not {cls.SIZE_BYTES}")
        whole = int.from_bytes(octets)
        return cls(
            **{
                name: place.of_int(whole >> shift & mask)
                for name, shift, mask, place in cls._fields()
            }
        )

    @classmethod
    def defined(cls) -> bytes:
        """Ones where the record has fields, zeros where it is reserved."""
        whole = 0
        for _, shift, mask, place in cls._fields():
            inner = place.of_int(0)
            ones = int.from_bytes(inner.defined()) if isinstance(inner, Record) else mask
            whole |= ones << shift
        return whole.to_bytes(cls.SIZE_BYTES)


# --- Messages -----------------------------------------------------------------------------------


class Attribute(enum.IntEnum):
    """Attribute ids of the messages (IBA 16.7.3)."""

    REQ = 0x10
    MRA = 0x11
    REJ = 0x12
    REP = 0x13
    RTU = 0x14
    DREQ = 0x15
    DREP = 0x16
    SIDR_REQ = 0x17
    SIDR_REP = 0x18
    LAP = 0x19
    APR = 0x1A


class Answered(enum.IntEnum):
    """Which message an MRA or a REJ is about (IBA 12.6.6, 12.6.7)."""

    REQ = 0
    REP = 1
    OTHER = 2  # in a REJ: none, the sender gave up; in an MRA: a LAP


class RejectReason(enum.IntEnum):
    """Why we refuse a connection (IBA table 109); names as Linux's enum ib_cm_rej_reason."""

    TIMEOUT = 4
    INVALID_SERVICE_ID = 8
    INVALID_TRANSPORT_TYPE = 9
    STALE_CONN = 10
    INVALID_GID = 12
    INVALID_MTU = 26
    CONSUMER_DEFINED = 28


class SidrStatus(enum.IntEnum):
    """What becomes of a service id request here (IBA 12.11.2)."""

    SUCCESS = 0
    UNSUPPORTED = 1
    REJECT = 2


class ApStatus(enum.IntEnum):
    """What became of an alternate path (IBA table 117), as far as it is used here."""

    INVALID_COMM_ID = 1
    UNSUPPORTED = 2


class TransportService(enum.IntEnum):
    """What the queue pairs are, in a REQ (IBA 12.7.22)."""

    RC = 0
    UC = 1


@dataclasses.dataclass(frozen=True)
class MadHeader(Record):
    """The common MAD header (IBA 13.4.3); the last 16 bits before the modifier are reserved."""

    SIZE_BYTES: ClassVar[int] = HEADER_BYTES

    base_version: int = at(0, 8, default=_BASE_VERSION)
    mgmt_class: int = at(1, 8, default=_CLASS_CM)
    class_version: int = at(2, 8, default=_CLASS_VERSION)
    method: int = at(3, 8, default=_METHOD_SEND)
    status: int = at(4, 16)
    class_specific: int = at(6, 16)
    tid: int = at(8, 64)
    attribute_id: int = at(16, 16)
    attribute_modifier: int = at(20, 32)


@dataclasses.dataclass(frozen=True)
class Path(Record):
    """A path in a REQ, from the sender's point of view (IBA table 106)."""

    SIZE_BYTES: ClassVar[int] = 44

    local_lid: int = at(0, 16)
    remote_lid: int = at(2, 16)
    local_gid: IPv6Address = dataclasses.field(default=NO_GID, metadata=gid_at(4))
    remote_gid: IPv6Address = dataclasses.field(default=NO_GID, metadata=gid_at(20))
    flow_label: int = at(36, 20)
    packet_rate: int = at(39, 6, bit=2)
    traffic_class: int = at(40, 8)
    hop_limit: int = at(41, 8)
    sl: int = at(42, 4)
    subnet_local: int = at(42, 1, bit=4)
    local_ack_timeout: int = at(43, 5)


@dataclasses.dataclass(frozen=True)
class Message(Record):
    """What follows the header."""

    ATTRIBUTE: ClassVar[Attribute]
    SIZE_BYTES: ClassVar[int] = BODY_BYTES

    def __init_subclass__(cls, attribute: Attribute | None = None) -> None:
        if attribute is not None:
            cls.ATTRIBUTE = attribute
            MESSAGES[attribute] = cls


MESSAGES: dict[int, type[Message]] = {}


@dataclasses.dataclass(frozen=True)
class Between(Message):
    """A message between two that know each other's comm ids, or one of them."""

    local_comm_id: int = at(0, 32)
    remote_comm_id: int = at(4, 32)


@dataclasses.dataclass(frozen=True)
class Req(Message, attribute=Attribute.REQ):
    """Request for communication (IBA 12.6.5)."""

    local_comm_id: int = at(0, 32)
    service_id: int = at(8, 64)
    local_ca_guid: int = at(16, 64)
    local_qkey: int = at(28, 32)
    local_qpn: int = at(32, 24)
    responder_resources: int = at(35, 8)
    local_eecn: int = at(36, 24)
    initiator_depth: int = at(39, 8)
    remote_eecn: int = at(40, 24)
    remote_cm_response_timeout: int = at(43, 5)
    transport_service: int = at(43, 2, bit=5)
    flow_control: int = at(43, 1, bit=7)
    starting_psn: int = at(44, 24)
    local_cm_response_timeout: int = at(47, 5)
    retry_count: int = at(47, 3, bit=5)
    partition_key: int = at(48, 16)
    path_mtu: int = at(50, 4)
    rdc_exists: int = at(50, 1, bit=4)
    rnr_retry_count: int = at(50, 3, bit=5)
    max_cm_retries: int = at(51, 4)
    srq: int = at(51, 1, bit=4)
    extended_transport: int = at(51, 3, bit=5)
    primary: Path = dataclasses.field(default_factory=Path, metadata=record_at(52, Path))
    alternate: Path = dataclasses.field(default_factory=Path, metadata=record_at(96, Path))
    sap_supported: int = at(139, 1, bit=5)
    private_data: bytes = data_at(140, 92)


@dataclasses.dataclass(frozen=True)
class Mra(Between, attribute=Attribute.MRA):
    """Message receipt acknowledgement: the response takes longer (IBA 12.6.6)."""

    answered: int = at(8, 2)
    service_timeout: int = at(9, 5)
    private_data: bytes = data_at(10, 222)


@dataclasses.dataclass(frozen=True)
class Rej(Between, attribute=Attribute.REJ):
    """Reject (IBA 12.6.7)."""

    answered: int = at(8, 2)
    info_length: int = at(9, 7)
    reason: int = at(10, 16)
    info: bytes = data_at(12, 72)
    private_data: bytes = data_at(84, 148)


@dataclasses.dataclass(frozen=True)
class Rep(Between, attribute=Attribute.REP):
    """Reply to a request for communication (IBA 12.6.8)."""

    local_qkey: int = at(8, 32)
    local_qpn: int = at(12, 24)
    local_eecn: int = at(16, 24)
    starting_psn: int = at(20, 24)
    responder_resources: int = at(24, 8)
    initiator_depth: int = at(25, 8)
    target_ack_delay: int = at(26, 5)
    failover_accepted: int = at(26, 2, bit=5)
    flow_control: int = at(26, 1, bit=7)
    rnr_retry_count: int = at(27, 3)
    srq: int = at(27, 1, bit=3)
    local_ca_guid: int = at(28, 64)
    private_data: bytes = data_at(36, 196)


@dataclasses.dataclass(frozen=True)
class Rtu(Between, attribute=Attribute.RTU):
    """Ready to use (IBA 12.6.9)."""

    private_data: bytes = data_at(8, 224)


@dataclasses.dataclass(frozen=True)
class Dreq(Between, attribute=Attribute.DREQ):
    """Request to end communication (IBA 12.6.10)."""

    remote_qpn: int = at(8, 24)
    private_data: bytes = data_at(12, 220)


@dataclasses.dataclass(frozen=True)
class Drep(Between, attribute=Attribute.DREP):
    """Reply to a request to end communication (IBA 12.6.11)."""

    private_data: bytes = data_at(8, 224)


@dataclasses.dataclass(frozen=True)
class SidrReq(Message, attribute=Attribute.SIDR_REQ):
    """Requests the QP of a service id (IBA 12.11.1)."""

    request_id: int = at(0, 32)
    partition_key: int = at(4, 16)
    service_id: int = at(8, 64)
    private_data: bytes = data_at(16, 216)


@dataclasses.dataclass(frozen=True)
class SidrRep(Message, attribute=Attribute.SIDR_REP):
    """The QP that serves a service id, or why none does (IBA 12.11.2)."""

    request_id: int = at(0, 32)
    status: int = at(4, 8)
    info_length: int = at(5, 8)
    qpn: int = at(8, 24)
    service_id: int = at(12, 64)
    qkey: int = at(20, 32)
    info: bytes = data_at(24, 72)
    private_data: bytes = data_at(96, 136)


@dataclasses.dataclass(frozen=True)
class Lap(Between, attribute=Attribute.LAP):
    """Load alternate path (IBA 12.8.1), as far as it takes to refuse it: RoCE has none."""

    remote_qpn: int = at(12, 24)
    remote_cm_response_timeout: int = at(15, 5)
    path: bytes = data_at(20, 44)
    private_data: bytes = data_at(64, 168)


@dataclasses.dataclass(frozen=True)
class Apr(Between, attribute=Attribute.APR):
    """Alternate path response (IBA 12.8.2)."""

    info_length: int = at(8, 8)
    ap_status: int = at(9, 8)
    info: bytes = data_at(12, 72)
    private_data: bytes = data_at(84, 148)


@dataclasses.dataclass(frozen=True)
class Mad:
    """A management datagram of the communication manager."""

    header: MadHeader
    message: Message

    @classmethod
    def of(cls, tid: int, message: Message) -> Mad:
        """The datagram that carries `message` in transaction `tid`."""
        return cls(MadHeader(tid=tid, attribute_id=message.ATTRIBUTE), message)

    def build(self) -> bytes:
        """All 256 octets."""
        return self.header.build() + self.message.build()

    @classmethod
    def parse(cls, octets: bytes) -> Mad:
        """The datagram in `octets`; LayoutError names what makes it none of the CM's."""
        if len(octets) != MAD_BYTES:
            raise LayoutError(f"{len(octets)} bytes, a MAD has {MAD_BYTES}")
        header = MadHeader.parse(octets[:HEADER_BYTES])
        wanted = (_BASE_VERSION, _CLASS_CM, _CLASS_VERSION, _METHOD_SEND)
        got = (header.base_version, header.mgmt_class, header.class_version, header.method)
        if got != wanted:
            raise LayoutError(f"base version, class, class version, method {got}, not {wanted}")
        kind = MESSAGES.get(header.attribute_id)
        if kind is None:
            raise LayoutError(f"attribute {header.attribute_id:#x} is no CM message")
        return cls(header, kind.parse(octets[HEADER_BYTES:]))


# --- Addresses, in private data (IBA annex A11) -------------------------------------------------

Address: TypeAlias = IPv4Address | IPv6Address

IP_HEADER_BYTES = 36


class rdma_port_space(enum.IntEnum):  # noqa: N801 - the C name, as pyverbs has it
    """Port spaces of rdma_cma.h."""

    RDMA_PS_IPOIB = 0x0002
    RDMA_PS_TCP = 0x0106
    RDMA_PS_UDP = 0x0111
    RDMA_PS_IB = 0x013F


def service_id(port_space: int, port: int) -> int:
    """The service id of a port: 01, the protocol, the port (A11.2.2), as Linux forms it."""
    return port_space << 16 | port


@dataclasses.dataclass(frozen=True)
class _Header(Record):
    """`struct cma_hdr` of Linux's cma.c; A11.5 calls it the IP addressing information."""

    SIZE_BYTES: ClassVar[int] = IP_HEADER_BYTES

    cma_version: int = at(0, 8)
    ip_version: int = at(1, 4)
    port: int = at(2, 16)
    source: int = at(4, 128)
    destination: int = at(20, 128)


@dataclasses.dataclass(frozen=True)
class IpHeader:
    """Source and destination: the head of the private data of a REQ or SIDR_REQ."""

    port: int  # of the source
    source: Address
    destination: Address

    def build(self) -> bytes:
        """36 octets; an IPv4 address is in the last four of its sixteen."""
        return _Header(
            ip_version=self.source.version,
            port=self.port,
            source=int(self.source),
            destination=int(self.destination),
        ).build()

    @classmethod
    def parse(cls, private_data: bytes) -> IpHeader:
        """The head of `private_data`; LayoutError if it is none."""
        header = _Header.parse(private_data[:IP_HEADER_BYTES])
        if header.cma_version != 0 or header.ip_version not in (4, 6):
            raise LayoutError(
                f"version {header.cma_version} with IPv{header.ip_version} is no IP CM header"
            )
        kind = IPv4Address if header.ip_version == 4 else IPv6Address
        bits = 32 if header.ip_version == 4 else 128
        if (header.source | header.destination) >> bits:
            raise LayoutError("an IPv4 address longer than 32 bits")
        return cls(header.port, kind(header.source), kind(header.destination))


def gid_of(address: Address) -> IPv6Address:
    """The GID of a RoCEv2 port with this address (annex A17.4.5)."""
    if isinstance(address, IPv6Address):
        return address
    return IPv6Address((0xFFFF << 32) | int(address))


def address_of(gid: IPv6Address) -> Address:
    """The address that a GID stands for."""
    return gid.ipv4_mapped or gid
