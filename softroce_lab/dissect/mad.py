# SPDX-License-Identifier: GPL-2.0-or-later
"""Management datagrams of the communication manager as scapy layers (IBA 12.6, 12.11, 13.4.3).

They are UD SEND-only packets to or from queue pair 1, 256 bytes each: `MAD`, then a message by its
attribute id. Fields are in the order of the specification's tables, under the names of
softroce_lab/programs/rdmacm/messages.py.
"""

from __future__ import annotations

from typing import Any, ClassVar

from scapy.fields import (
    BitEnumField,
    BitField,
    ByteField,
    IP6Field,
    ShortEnumField,
    ShortField,
    StrFixedLenField,
    XBitField,
    XIntField,
    XLongField,
)
from scapy.packet import Packet, bind_top_down

from softroce_lab.dissect.opcodes import UD_SEND_ONLY
from softroce_lab.dissect.roce import BTH, RECOGNISERS, Payload

BYTES = 256
GSI_QP = 1
CLASS_CM = 0x07
_HEADER_BYTES = 24

_ATTRIBUTES = {
    0x10: "REQ", 0x11: "MRA", 0x12: "REJ", 0x13: "REP", 0x14: "RTU", 0x15: "DREQ", 0x16: "DREP",
    0x17: "SIDR_REQ", 0x18: "SIDR_REP", 0x19: "LAP", 0x1A: "APR",
}  # fmt: skip
_SERVICES = {0: "RC", 1: "UC", 2: "RD", 3: "see extended_transport"}
_ANSWERED = {0: "REQ", 1: "REP", 2: "other"}
_REASONS = {
    1: "no QP", 2: "no EEC", 3: "no resources", 4: "timeout", 5: "unsupported request",
    6: "invalid communication id", 7: "invalid communication instance", 8: "invalid service id",
    9: "invalid transport service type", 10: "stale connection", 11: "RDC does not exist",
    12: "primary remote GID rejected", 13: "primary remote LID rejected",
    14: "invalid primary SL", 15: "invalid primary traffic class",
    16: "invalid primary hop limit", 17: "invalid primary packet rate",
    18: "alternate remote GID rejected", 19: "alternate remote LID rejected",
    20: "invalid alternate SL", 21: "invalid alternate traffic class",
    22: "invalid alternate hop limit", 23: "invalid alternate packet rate",
    24: "CM redirection", 25: "port redirection", 26: "invalid path MTU",
    27: "insufficient responder resources", 28: "consumer reject", 29: "RNR retry count reject",
    30: "duplicate local communication id", 31: "unsupported class version",
    32: "invalid primary flow label", 33: "invalid alternate flow label",
}  # fmt: skip
_SIDR_STATUS = {
    0: "QPN valid", 1: "service id not supported", 2: "rejected by provider", 3: "no QP available",
    4: "redirect", 5: "unsupported version",
}  # fmt: skip


def _ids(*names: str) -> list[Any]:
    return [XIntField(f"{name}_id", 0) for name in names]


def _bits(**widths: int) -> list[Any]:
    """Numbers of so many bits; names that begin with `reserved` included."""
    return [BitField(name, 0, width) for name, width in widths.items()]


def _data(length: int, name: str = "private_data") -> Any:
    return StrFixedLenField(name, b"", length=length)


def _path(which: str) -> list[Any]:
    return [
        *_bits(**{f"{which}_local_lid": 16, f"{which}_remote_lid": 16}),
        IP6Field(f"{which}_local_gid", "::"),
        IP6Field(f"{which}_remote_gid", "::"),
        *_bits(**{
            f"{which}_flow_label": 20, f"reserved_{which}_1": 6, f"{which}_packet_rate": 6,
            f"{which}_traffic_class": 8, f"{which}_hop_limit": 8, f"{which}_sl": 4,
            f"{which}_subnet_local": 1, f"reserved_{which}_2": 3, f"{which}_local_ack_timeout": 5,
        }),
    ]  # fmt: skip


class MAD(Packet):
    """The common MAD header (IBA 13.4.3)."""

    name = "MAD - Management Datagram"
    fields_desc: ClassVar[list[Any]] = [
        ByteField("base_version", 1),
        ByteField("mgmt_class", CLASS_CM),
        ByteField("class_version", 2),
        ByteField("method", 3),
        ShortField("status", 0),
        ShortField("class_specific", 0),
        XLongField("tid", 0),
        ShortEnumField("attribute_id", 0x10, _ATTRIBUTES),
        ShortField("reserved", 0),
        XIntField("attribute_modifier", 0),
    ]

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """The communication manager's message, if all of it is there."""
        if self.mgmt_class != CLASS_CM or len(payload) < BYTES - _HEADER_BYTES:
            return Payload
        return MESSAGES.get(self.attribute_id, Payload)

    def mysummary(self) -> str:
        return f"MAD class {self.mgmt_class:#04x} attribute {self.attribute_id:#x}"


class CmMessage(Packet):
    """Base of the messages: 232 bytes behind the header."""

    def mysummary(self) -> str:
        ids = [
            each.name for each in self.fields_desc if each.name.endswith(("comm_id", "quest_id"))
        ]
        reported = " ".join(f"{name} {self.getfieldval(name):#x}" for name in ids)
        return f"CM {str(self.name).partition(' ')[0]} {reported}"


MESSAGES: dict[int, type[CmMessage]] = {}


def _message(title: str, *fields: Any) -> type[CmMessage]:
    """The layer of a message, whose title begins with the name of its attribute."""
    short = title.partition(" ")[0]
    members = {"name": title, "__module__": __name__, "fields_desc": list(fields)}
    layer = type("Cm" + short.title().replace("_", ""), (CmMessage,), members)
    number = next(each for each, name in _ATTRIBUTES.items() if name == short)
    MESSAGES[number] = layer
    bind_top_down(MAD, layer, attribute_id=number)
    return layer


CmReq = _message(
    "REQ - Request for Communication",
    *_ids("local_comm"),
    *_bits(reserved_1=32),
    XLongField("service_id", 0),
    XLongField("local_ca_guid", 0),
    *_bits(reserved_2=32),
    XIntField("local_qkey", 0),
    XBitField("local_qpn", 0, 24),
    *_bits(responder_resources=8, local_eecn=24, initiator_depth=8, remote_eecn=24),
    *_bits(remote_cm_response_timeout=5),
    BitEnumField("transport_service", 0, 2, _SERVICES),
    *_bits(flow_control=1, starting_psn=24, local_cm_response_timeout=5, retry_count=3),
    XBitField("partition_key", 0xFFFF, 16),
    *_bits(path_mtu=4, rdc_exists=1, rnr_retry_count=3, max_cm_retries=4, srq=1),
    *_bits(extended_transport=3),
    *_path("primary"),
    *_bits(reserved_3=3),
    *_path("alternate"),
    *_bits(sap_supported=1, reserved_4=2),
    _data(92),
)
CmMra = _message(
    "MRA - Message Receipt Acknowledgement",
    *_ids("local_comm", "remote_comm"),
    BitEnumField("answered", 0, 2, _ANSWERED),
    *_bits(reserved_1=6, service_timeout=5, reserved_2=3),
    _data(222),
)
CmRej = _message(
    "REJ - Reject",
    *_ids("local_comm", "remote_comm"),
    BitEnumField("answered", 0, 2, _ANSWERED),
    *_bits(reserved_1=6, info_length=7, reserved_2=1),
    ShortEnumField("reason", 0, _REASONS),
    _data(72, "info"),
    _data(148),
)
CmRep = _message(
    "REP - Reply to Request for Communication",
    *_ids("local_comm", "remote_comm"),
    XIntField("local_qkey", 0),
    XBitField("local_qpn", 0, 24),
    *_bits(reserved_1=8, local_eecn=24, reserved_2=8, starting_psn=24, reserved_3=8),
    *_bits(responder_resources=8, initiator_depth=8, target_ack_delay=5),
    *_bits(failover_accepted=2, flow_control=1, rnr_retry_count=3, srq=1, reserved_4=4),
    XLongField("local_ca_guid", 0),
    _data(196),
)
CmRtu = _message("RTU - Ready To Use", *_ids("local_comm", "remote_comm"), _data(224))
CmDreq = _message(
    "DREQ - Disconnect Request",
    *_ids("local_comm", "remote_comm"),
    XBitField("remote_qpn", 0, 24),
    *_bits(reserved_1=8),
    _data(220),
)
CmDrep = _message("DREP - Disconnect Reply", *_ids("local_comm", "remote_comm"), _data(224))
CmSidrReq = _message(
    "SIDR_REQ - Service ID Resolution Request",
    *_ids("request"),
    XBitField("partition_key", 0xFFFF, 16),
    *_bits(reserved_1=16),
    XLongField("service_id", 0),
    _data(216),
)
CmSidrRep = _message(
    "SIDR_REP - Service ID Resolution Response",
    *_ids("request"),
    BitEnumField("status", 0, 8, _SIDR_STATUS),
    *_bits(info_length=8, reserved_1=16),
    XBitField("qpn", 0, 24),
    *_bits(reserved_2=8),
    XLongField("service_id", 0),
    XIntField("qkey", 0),
    _data(72, "info"),
    _data(136),
)


def recognise(bth: BTH, payload: bytes) -> type[Packet] | None:
    """MAD, for datagrams to the general services interface."""
    is_mad = bth.opcode == UD_SEND_ONLY and bth.destqp == GSI_QP and len(payload) >= _HEADER_BYTES
    return MAD if is_mad else None


RECOGNISERS.append(recognise)
