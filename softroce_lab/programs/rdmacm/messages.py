# SPDX-License-Identifier: GPL-2.0-or-later
"""MADs of the communication manager: the common header (IBA 13.4.3) and messages (IBA 12.6).

Offsets are those of the specification's tables, from the end of the 24-octet header; so they are
in Linux's include/rdma/ibta_vol1_c12.h.
"""

from __future__ import annotations

import dataclasses
import enum
from ipaddress import IPv6Address
from typing import ClassVar

from softroce_lab.programs.rdmacm.layout import LayoutError, Record, at, data_at, gid_at, record_at

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
    """Why a connection is refused (IBA table 109); names as Linux's enum ib_cm_rej_reason."""

    NO_QP = 1
    NO_EEC = 2
    NO_RESOURCES = 3
    TIMEOUT = 4
    UNSUPPORTED = 5
    INVALID_COMM_ID = 6
    INVALID_COMM_INSTANCE = 7
    INVALID_SERVICE_ID = 8
    INVALID_TRANSPORT_TYPE = 9
    STALE_CONN = 10
    RDC_NOT_EXIST = 11
    INVALID_GID = 12
    INVALID_LID = 13
    INVALID_SL = 14
    INVALID_TRAFFIC_CLASS = 15
    INVALID_HOP_LIMIT = 16
    INVALID_PACKET_RATE = 17
    INVALID_ALT_GID = 18
    INVALID_ALT_LID = 19
    INVALID_ALT_SL = 20
    INVALID_ALT_TRAFFIC_CLASS = 21
    INVALID_ALT_HOP_LIMIT = 22
    INVALID_ALT_PACKET_RATE = 23
    PORT_CM_REDIRECT = 24
    PORT_REDIRECT = 25
    INVALID_MTU = 26
    INSUFFICIENT_RESP_RESOURCES = 27
    CONSUMER_DEFINED = 28
    INVALID_RNR_RETRY = 29
    DUPLICATE_LOCAL_COMM_ID = 30
    INVALID_CLASS_VERSION = 31
    INVALID_FLOW_LABEL = 32
    INVALID_ALT_FLOW_LABEL = 33


class SidrStatus(enum.IntEnum):
    """What became of a service id request (IBA 12.11.2)."""

    SUCCESS = 0
    UNSUPPORTED = 1
    REJECT = 2
    NO_QP = 3
    REDIRECT = 4
    UNSUPPORTED_VERSION = 5


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


@dataclasses.dataclass(frozen=True)
class Req(Message):
    """Request for communication (IBA 12.6.5)."""

    ATTRIBUTE: ClassVar[Attribute] = Attribute.REQ

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
class Mra(Message):
    """Message receipt acknowledgement: the response takes longer (IBA 12.6.6)."""

    ATTRIBUTE: ClassVar[Attribute] = Attribute.MRA

    local_comm_id: int = at(0, 32)
    remote_comm_id: int = at(4, 32)
    answered: int = at(8, 2)
    service_timeout: int = at(9, 5)
    private_data: bytes = data_at(10, 222)


@dataclasses.dataclass(frozen=True)
class Rej(Message):
    """Reject (IBA 12.6.7)."""

    ATTRIBUTE: ClassVar[Attribute] = Attribute.REJ

    local_comm_id: int = at(0, 32)
    remote_comm_id: int = at(4, 32)
    answered: int = at(8, 2)
    info_length: int = at(9, 7)
    reason: int = at(10, 16)
    info: bytes = data_at(12, 72)
    private_data: bytes = data_at(84, 148)


@dataclasses.dataclass(frozen=True)
class Rep(Message):
    """Reply to a request for communication (IBA 12.6.8)."""

    ATTRIBUTE: ClassVar[Attribute] = Attribute.REP

    local_comm_id: int = at(0, 32)
    remote_comm_id: int = at(4, 32)
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
class Rtu(Message):
    """Ready to use (IBA 12.6.9)."""

    ATTRIBUTE: ClassVar[Attribute] = Attribute.RTU

    local_comm_id: int = at(0, 32)
    remote_comm_id: int = at(4, 32)
    private_data: bytes = data_at(8, 224)


@dataclasses.dataclass(frozen=True)
class Dreq(Message):
    """Request to end communication (IBA 12.6.10)."""

    ATTRIBUTE: ClassVar[Attribute] = Attribute.DREQ

    local_comm_id: int = at(0, 32)
    remote_comm_id: int = at(4, 32)
    remote_qpn: int = at(8, 24)
    private_data: bytes = data_at(12, 220)


@dataclasses.dataclass(frozen=True)
class Drep(Message):
    """Reply to a request to end communication (IBA 12.6.11)."""

    ATTRIBUTE: ClassVar[Attribute] = Attribute.DREP

    local_comm_id: int = at(0, 32)
    remote_comm_id: int = at(4, 32)
    private_data: bytes = data_at(8, 224)


@dataclasses.dataclass(frozen=True)
class SidrReq(Message):
    """Requests the QP of a service id (IBA 12.11.1)."""

    ATTRIBUTE: ClassVar[Attribute] = Attribute.SIDR_REQ

    request_id: int = at(0, 32)
    partition_key: int = at(4, 16)
    service_id: int = at(8, 64)
    private_data: bytes = data_at(16, 216)


@dataclasses.dataclass(frozen=True)
class SidrRep(Message):
    """The QP that serves a service id, or why none does (IBA 12.11.2)."""

    ATTRIBUTE: ClassVar[Attribute] = Attribute.SIDR_REP

    request_id: int = at(0, 32)
    status: int = at(4, 8)
    info_length: int = at(5, 8)
    qpn: int = at(8, 24)
    service_id: int = at(12, 64)
    qkey: int = at(20, 32)
    info: bytes = data_at(24, 72)
    private_data: bytes = data_at(96, 136)


@dataclasses.dataclass(frozen=True)
class Lap(Message):
    """Load alternate path (IBA 12.8.1), as far as it takes to refuse it: RoCE has none."""

    ATTRIBUTE: ClassVar[Attribute] = Attribute.LAP

    local_comm_id: int = at(0, 32)
    remote_comm_id: int = at(4, 32)
    remote_qpn: int = at(12, 24)
    remote_cm_response_timeout: int = at(15, 5)
    path: bytes = data_at(20, 44)
    private_data: bytes = data_at(64, 168)


@dataclasses.dataclass(frozen=True)
class Apr(Message):
    """Alternate path response (IBA 12.8.2)."""

    ATTRIBUTE: ClassVar[Attribute] = Attribute.APR

    local_comm_id: int = at(0, 32)
    remote_comm_id: int = at(4, 32)
    info_length: int = at(8, 8)
    ap_status: int = at(9, 8)
    info: bytes = data_at(12, 72)
    private_data: bytes = data_at(84, 148)


MESSAGES: dict[int, type[Message]] = {
    kind.ATTRIBUTE: kind
    for kind in (Req, Mra, Rej, Rep, Rtu, Dreq, Drep, SidrReq, SidrRep, Lap, Apr)
}


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
