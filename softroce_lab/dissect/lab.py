# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab's own headers as scapy layers, made from `description`.

    Ether() / IP() / UDP() / BTH() / DETH() / LabHeader(message=1, path=3) / b"data"
    Ether() / IP() / UDP() / BTH() / DETH() / LabHeader() / LabOperation(rkey=7) / b"data"

What UD SEND-only packets carry is a lab header if it looks like one and its path is that of the UDP
source port: `LabHeader` builds it so. What RC SEND-only packets carry is taken for the SDR SDK's
clear to send if it could be one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from scapy.fields import (
    BitEnumField,
    BitField,
    BitFieldLenField,
    Field,
    IntField,
    LongField,
    PacketListField,
    ShortField,
    StrField,
    StrFixedLenField,
)
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, bind_top_down

from softroce_lab.dissect import description, packet_sets
from softroce_lab.dissect.description import SPORT_BASE, MissingPackets, Record, Repeated, Text
from softroce_lab.dissect.opcodes import RC_SEND_ONLY, UD_SEND_ONLY
from softroce_lab.dissect.roce import BTH, RECOGNISERS, Payload, bth_of

_NUMBERS = {16: ShortField, 32: IntField, 64: LongField}


def _number(field: description.Field, computed: bool = False) -> Any:
    default: Any = None if computed else field.default
    if field.values is not None:
        return BitEnumField(field.name, default, field.bits, dict(field.values))
    if field.bits in _NUMBERS:
        return _NUMBERS[field.bits](field.name, default)
    return BitField(field.name, default, field.bits)


class _TextField(StrFixedLenField):
    """Text in a fixed number of octets, up to the first zero."""

    def i2repr(self, pkt: Packet | None, x: bytes) -> str:
        return text_of(x)


def text_of(octets: bytes) -> str:
    """The text in a field of `Text`."""
    return octets.split(b"\0")[0].decode("ascii", "backslashreplace")


class _Entry(Packet):
    """One of several in a row: what follows is the next one's."""

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes | None]:
        return b"", s


def _fields(record: Record) -> list[Field[Any, Any]]:
    """scapy's fields of a record, a repeated part as a list of layers of its own."""
    counts = {part.count: part for part in record.parts if isinstance(part, Repeated)}
    made: list[Field[Any, Any]] = []
    for part in record.parts:
        if isinstance(part, MissingPackets):
            made.append(PacketListField(part.name, [], PacketSet, max_count=1))
        elif isinstance(part, Repeated):
            made.append(_list(record, part))
        elif isinstance(part, Text):
            made.append(_TextField(part.name, bytes(part.octets), part.octets))
        elif part.name in counts:
            counted = counts[part.name].name
            made.append(BitFieldLenField(part.name, None, part.bits, count_of=counted))
        else:
            made.append(_number(part))
    return made


def _list(record: Record, part: Repeated) -> PacketListField:
    layer = type(
        f"{record.name} {part.name}",
        (_Entry,),
        {
            "name": part.label,
            "__module__": __name__,
            "fields_desc": [_number(each) for each in part.fields],
        },
    )
    count = part.count
    if count is None:
        return PacketListField(part.name, [], layer)
    least = [layer() for _ in range(part.least)]
    return PacketListField(part.name, least, layer, count_from=lambda pkt: getattr(pkt, count))


class _BitsField(StrField):
    def i2repr(self, pkt: Packet | None, x: bytes) -> str:
        return x.hex() + (f" [missing: {pkt.missing()}]" if isinstance(pkt, PacketSet) else "")


class PacketSet(_Entry):
    """Which packets of a message are missing."""

    name = "packet set"
    fields_desc: ClassVar[list[Any]] = [
        *_fields(description.PACKET_SET),
        _BitsField("bits", b""),
    ]

    @classmethod
    def of(cls, missing: Iterable[int]) -> PacketSet:
        """The set of these packets, at least one, as plain bits."""
        packets = sorted(missing)
        base, count = packets[0], packets[-1] - packets[0] + 1
        return cls(base=base, count=count, bits=packet_sets.plain_bits(packets, base, count))

    def ranges(self) -> list[packet_sets.Range]:
        """First and last of each run of missing packets; ValueError if the bits are malformed."""
        return packet_sets.ranges(self.form, self.base, self.count, self.bits)

    def missing(self) -> str:
        """The same in words, malformed or not."""
        try:
            return packet_sets.text(self.ranges())
        except ValueError as error:
            return f"malformed: {error}"


class Body(Packet):
    def mysummary(self) -> str:
        every = [each.name for each in self.fields_desc]
        names = [name for name in every if name != "type" and not name.startswith("reserved")]
        return " ".join([str(self.name), *(f"{name} {self._reported(name)}" for name in names)])

    def _reported(self, name: str) -> str:
        value = self.getfieldval(name)
        if not isinstance(value, list):
            return str(self.get_field(name).i2repr(self, value))
        return "[" + ", ".join(map(_reported, value)) + "]"


def _reported(entry: Packet) -> str:
    if isinstance(entry, PacketSet):
        return entry.missing()
    return ".".join(str(entry.getfieldval(each.name)) for each in entry.fields_desc)


def _body(record: Record) -> type[Packet]:
    return type(
        record.name.title().replace(" ", ""),
        (Body,),
        {"name": record.name, "__module__": __name__, "fields_desc": _fields(record)},
    )


CONTROLS = {number: _body(record) for number, record in description.CONTROLS.items()}
(
    Nack, Ack, Keepalive, Rnr, Refuse, Sack, Chunks, Clear,
    PacketAck, PacketNack, PacketSack, PacketTrimmed, PacketPull,
) = CONTROLS.values()  # fmt: skip
ReceiverReport = _body(description.REPORT_BODY)
PathProbe = _body(description.PROBE_BODY)
Hello = _body(description.HELLO)
SdrClearToSend = _body(description.SDR_CLEAR)
_BODIES = {description.REPORT: ReceiverReport, description.PATH_PROBE: PathProbe}


class _TrimmedField(BitField):
    def i2repr(self, pkt: Packet | None, x: int) -> str:
        words = pkt.trimming() if isinstance(pkt, LabHeader) else ""
        return f"{x} [{words}]" if words else str(x)


class LabHeader(Packet):
    """`struct lab_hdr`; None as `path`: the UDP source port's, as `length`: of what follows."""

    name = "softroce_lab header"
    fields_desc: ClassVar[list[Any]] = [
        _TrimmedField("trimmed", 0, 1)
        if part.name == "trimmed"
        else _number(part, computed=part.name in ("path", "length"))
        for part in description.HEADER.parts
        if isinstance(part, description.Field)
    ]

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        if self.version == description.OPERATION_VERSION:
            return LabOperation if _is_operation(payload) else Payload
        if self.kind == description.CONTROL and self.message_id == description.HELLO_ID:
            return Hello
        if self.kind == description.CONTROL:
            return CONTROLS.get(payload[0], Payload)
        return _BODIES.get(self.kind, Payload)

    def do_dissect_payload(self, s: bytes) -> None:
        report = s[self.length :] if self.kind == description.CONTROL and self.length else b""
        if len(report) < description.REPORT_BYTES:
            report = b""
        super().do_dissect_payload(s[: len(s) - len(report)])
        if report:
            self.lastlayer().add_payload(ReceiverReport(report))

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fills in path and length."""
        head = bytearray(pkt)
        if self.path is None:
            head[1] = self._path_of_port()
        if self.length is None:
            report = (
                self.payload.getlayer(ReceiverReport) if self.kind == description.CONTROL else None
            )
            body = len(pay) - (len(report) if report is not None else 0)
            if isinstance(self.payload, LabOperation):
                body -= description.OPERATION_BYTES
            head[24:28] = body.to_bytes(4, "big")
        return bytes(head) + pay

    def _path_of_port(self) -> int:
        udp = self._udp()
        return (udp.sport - SPORT_BASE) & 0xFF if udp else 0

    def _udp(self) -> UDP | None:
        bth = bth_of(self)
        udp = bth.underlayer if bth else None
        return udp if isinstance(udp, UDP) else None

    def trimming(self) -> str:
        """Which link cut off the payload, in words; empty: none did."""
        if not self.trimmed:
            return ""
        udp = self._udp()
        ip = udp.underlayer if udp else None
        traffic_class = ip.tos if isinstance(ip, IP) else ip.tc if isinstance(ip, IPv6) else 0
        is_last = traffic_class >> 2 == description.TRIM_LAST_DSCP
        return "trimmed" + " (last hop)" * is_last

    def mysummary(self) -> str:
        kind = description.KINDS.get(self.kind, f"kind {self.kind}")
        if self.kind not in description.OF_MESSAGES:
            return f"{kind} {self.message}"
        if isinstance(self.payload, LabOperation):
            message = self._operation_of(self.payload)
        else:
            message = f"{kind} {self.operation}.{self.step}.{self.message}"
        again = f" attempt {self.attempt}" * bool(self.attempt)
        place = f"id {self.message_id} packet {self.index}/{self.count}"
        return f"{message} {place}{again} {self.trimming()}".rstrip()

    def _operation_of(self, layer: LabOperation) -> str:
        parity = "parity of " * (self.kind == description.PARITY)
        result = "result of " * (self.operation >> 8 == description.RESULT)
        verb = description.VERBS.get(layer.verb, f"verb {layer.verb}")
        qp = description.operation_qp(self.operation, self.step)
        return f"{parity}{result}{verb} {self.message} of QP {qp:#x}"


class LabOperation(Packet):
    """`struct lab_operation`: what an operation says of itself in each packet of its messages."""

    name = description.OPERATION.name
    fields_desc: ClassVar[list[Any]] = _fields(description.OPERATION)

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return Payload


def _is_operation(data: bytes) -> bool:
    """Whether the bytes begin with an operation that our engine would take."""
    if len(data) < description.OPERATION_BYTES:
        return False
    head = int.from_bytes(data[: description.OPERATION_BYTES], "big")
    values = description.OPERATION.split(head)
    return values["verb"] in description.VERBS and values["reserved"] == 0


def recognise(bth: BTH, payload: bytes) -> type[Packet] | None:
    """LabHeader, if the payload is one: what our engine would take for its own."""
    if bth.opcode != UD_SEND_ONLY or len(payload) < description.HEADER_BYTES:
        return None
    version, kind = payload[0] >> 4, payload[0] & 7
    if version == description.OPERATION_VERSION:
        behind = payload[description.HEADER_BYTES :]
        if kind not in description.OF_MESSAGES or not _is_operation(behind):
            return None
    elif version != description.HEADER_VERSION or kind not in description.KINDS:
        return None
    udp = bth.underlayer
    on_path = not isinstance(udp, UDP) or udp.sport == SPORT_BASE + payload[1]
    return LabHeader if on_path else None


def recognise_sdr_clear(bth: BTH, payload: bytes) -> type[Packet] | None:
    """SdrClearToSend, if the payload could be one: it has no mark."""
    if bth.opcode != RC_SEND_ONLY or len(payload) != description.SDR_CLEAR_BYTES:
        return None
    length = description.SDR_CLEAR.split(int.from_bytes(payload, "big"))["length"]
    return SdrClearToSend if 1 <= length <= description.MOST_SLOT_BYTES else None


RECOGNISERS += [recognise, recognise_sdr_clear]
for _layer in CONTROLS.values():
    bind_top_down(LabHeader, _layer, kind=description.CONTROL)
bind_top_down(LabHeader, Hello, kind=description.CONTROL, message_id=description.HELLO_ID)
bind_top_down(LabHeader, ReceiverReport, kind=description.REPORT)
bind_top_down(LabHeader, LabOperation, version=description.OPERATION_VERSION)
