# SPDX-License-Identifier: GPL-2.0-or-later
"""RoCEv2 as scapy layers: the BTH with its padding and ICRC, and every extension header.

Fields have Wireshark's names (`infiniband.bth.destqp` is `BTH.destqp`). `None` stands for what
follows from the rest and is filled in when the packet is built: the opcode (that of a whole message
with these extension headers), the pad count, the padding, and the ICRC.

    Ether() / IP(dst="10.0.0.2") / UDP() / BTH(destqp=0x11) / RETH(va=0x1000, r_key=7) / b"data"
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from scapy.config import conf
from scapy.fields import (
    BitField,
    ByteEnumField,
    Field,
    IntField,
    StrField,
    XBitField,
    XByteField,
    XIntField,
    XLongField,
    XShortField,
)
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import NoPayload, Packet, Padding, Raw, bind_top_down

from softroce_lab.dissect import description, syndrome
from softroce_lab.dissect.opcodes import CNP, OPCODES, UC_WRITE_ONLY_IMMEDIATE, Opcode, implied

PORT = 4791
"""UDP destination port (IBA annex A17)."""
SPORT = 0xC000
"""UDP source port of what is built here and names none."""
NOT_CAPTURED = -1
"""ICRC of a packet of which the capture has not everything."""

_UDP_BYTES, _BTH_BYTES, _ICRC_BYTES = 8, 12, 4
_LRH = b"\xff" * 8
# Offset in the header -> bits that do not count.
_IPV4 = {1: 0xFF, 8: 0xFF, 10: 0xFF, 11: 0xFF}  # type of service, TTL, checksum
_IPV6 = {0: 0x0F, 1: 0xFF, 2: 0xFF, 3: 0xFF, 7: 0xFF}  # traffic class, flow label, hop limit
_UDP = {6: 0xFF, 7: 0xFF}  # checksum
_BTH = {4: 0xFF}  # FECN, BECN, resv6
_MOST_SHOWN = 32


class _AtTheEnd(Field[Any, Any]):
    """A field of the BTH that travels behind the payload: `BTH` itself reads and writes it."""

    def getfield(self, pkt: Packet, s: bytes) -> tuple[bytes, Any]:
        return s, None

    def addfield(self, pkt: Packet, s: bytes, val: Any) -> bytes:
        return s


class _PadField(_AtTheEnd):
    def any2i(self, pkt: Packet | None, x: Any) -> bytes | None:
        return None if x is None else bytes(x)


class _IcrcField(_AtTheEnd):
    def i2repr(self, pkt: Packet | None, x: int | None) -> str:
        if x is None:
            return "None"
        if x == NOT_CAPTURED:
            return "not captured"
        due = pkt.icrc_due() if isinstance(pkt, BTH) else None
        if due is None:
            return f"{x:#010x} [cannot be verified]"
        return f"{x:#010x} [{'right' if due == x else f'wrong: {due:#010x} is right'}]"


class _QpField(XBitField):
    def i2repr(self, pkt: Packet | None, x: int | None) -> str:
        return "None" if x is None else f"{x:#08x}"


class BTH(Packet):
    """Base Transport Header (IBA 9.2), with the padding and ICRC that end the packet."""

    name = "Base Transport Header"
    fields_desc: ClassVar[list[Any]] = [
        ByteEnumField("opcode", None, {each.number: each.name for each in OPCODES.values()}),
        BitField("se", 0, 1),
        BitField("m", 0, 1),
        BitField("padcnt", None, 2),
        BitField("tver", 0, 4),
        XShortField("p_key", 0xFFFF),
        BitField("fecn", 0, 1),
        BitField("becn", 0, 1),
        BitField("resv6", 0, 6),
        _QpField("destqp", 0, 24),
        BitField("a", 0, 1),
        BitField("resv7", 0, 7),
        BitField("psn", 0, 24),
        _PadField("pad", None),
        _IcrcField("icrc", None),
    ]

    def kind(self) -> Opcode | None:
        """What the opcode, given or implied, means; None: there is no such opcode."""
        return OPCODES.get(self.implied_opcode() if self.opcode is None else self.opcode)

    def implied_opcode(self) -> int:
        """That of a whole message with the headers that follow; ValueError: none has them."""
        headers = tuple(type(each).__name__ for each in _extensions_of(self))
        carries = not isinstance(_behind_extensions(self), NoPayload | Padding)
        opcode = implied(headers, payload=carries)
        if opcode is None:
            wanted = " / ".join(("BTH", *headers)) + " / payload" * carries
            raise ValueError(f"no opcode of a whole message has {wanted}: set BTH.opcode")
        return opcode

    # ------------------------------------------------------------ parsing

    def post_dissect(self, s: bytes) -> bytes:
        """Takes padding and ICRC from the end; a snapped packet lacks them, or a part of them."""
        udp = self.underlayer
        announced = udp.len - _UDP_BYTES - _BTH_BYTES if isinstance(udp, UDP) else len(s)
        end = max(0, announced - _ICRC_BYTES - self.padcnt)
        payload, trailer = s[:end], s[end:]
        whole = len(s) >= announced and len(trailer) >= _ICRC_BYTES
        cut = len(trailer) - _ICRC_BYTES if whole else len(trailer)
        self.fields["pad"] = trailer[:cut]
        self.fields["icrc"] = int.from_bytes(trailer[cut:], "big") if whole else NOT_CAPTURED
        self.raw_packet_cache = None  # so that building calls post_build
        return payload

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """The first extension header of the opcode, or what the payload looks like."""
        return _class_behind(self, payload)

    # ------------------------------------------------------------ building

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fills in what is None, and adds padding and ICRC."""
        bth, rest = self._completed(pkt, pay)
        if self.icrc == NOT_CAPTURED:
            return bth + rest
        value = self._icrc_over(bth, rest) if self.icrc is None else self.icrc
        return bth + rest + (value or 0).to_bytes(_ICRC_BYTES, "big")

    def _completed(self, bth: bytes, pay: bytes) -> tuple[bytes, bytes]:
        """Nothing of the BTH left to be filled in, and the payload with its padding."""
        pad: bytes | None = self.pad
        if pad is None:
            pad = bytes(-len(pay) % 4 if self.padcnt is None else self.padcnt)
        head = bytearray(bth)
        if self.opcode is None:
            head[0] = self.implied_opcode()
        if self.padcnt is None:
            head[1] |= (len(pad) & 3) << 4
        return bytes(head), pay + pad

    def _icrc_over(self, bth: bytes, rest: bytes) -> int | None:
        """The ICRC of the packet with these bytes; None: it is not in UDP over IP."""
        udp = self.underlayer
        ip = udp.underlayer if isinstance(udp, UDP) else None
        if udp is None or not isinstance(ip, IP | IPv6):
            return None
        udp_bytes = _UDP_BYTES + len(bth) + len(rest) + _ICRC_BYTES
        udp_header = _header_alone(udp, len=udp_bytes, chksum=0)
        if isinstance(ip, IPv6):
            ip_header = _header_alone(ip, plen=udp_bytes)
        else:
            options = len(_header_alone(ip, len=0, chksum=0))
            ip_header = _header_alone(ip, len=options + udp_bytes, chksum=0)
        return _icrc(ip_header, udp_header, bth, rest)

    # ------------------------------------------------------------ what it states

    def icrc_due(self) -> int | None:
        """What the ICRC should be; None: the packet is not in UDP over IP, or not whole."""
        if self.icrc == NOT_CAPTURED:
            return None
        return self._icrc_over(*self._completed(self.self_build(), self.do_build_payload()))

    def icrc_is_right(self) -> bool | None:
        """Whether it is; None: that cannot be known, the packet was not captured as a whole."""
        due = self.icrc_due()
        return None if due is None or self.icrc is None else self.icrc == due

    def mysummary(self) -> str:
        kind = self.kind()
        name = kind.name if kind else f"opcode {self.opcode:#04x}"
        return f"{name} qp {self.destqp:#x} psn {self.psn}" + " ack-req" * bool(self.a)


def _masked(header: bytes, mask: dict[int, int]) -> bytes:
    changed = bytearray(header)
    for at, bits in mask.items():
        changed[at] |= bits
    return bytes(changed)


def _icrc(ip: bytes, udp: bytes, bth: bytes, rest: bytes) -> int:
    """The invariant CRC of a packet (IBA 7.8.1, annex A17.3.2); `rest` is between BTH and ICRC.

    CRC-32 of Ethernet over eight bytes of ones (an LRH that is not there), then the packet from its
    IP header, with its options, to the end of the padding, with ones wherever routers may change
    it. It travels with its low byte first; the number has the first byte in front, as Wireshark
    writes it.
    """
    mask = _IPV6 if ip[0] >> 4 == 6 else _IPV4
    covered = _LRH + _masked(ip, mask) + _masked(udp, _UDP) + _masked(bth, _BTH)
    return int.from_bytes(zlib.crc32(covered + rest).to_bytes(_ICRC_BYTES, "little"), "big")


def _header_alone(layer: Packet, **due: int) -> bytes:
    """The layer's header; `due` has fields to set where the layer leaves them to be computed."""
    if layer.raw_packet_cache is not None:  # it was parsed, and not changed since
        return layer.self_build()
    values = {field.name: layer.getfieldval(field.name) for field in layer.fields_desc}
    values |= {name: value for name, value in due.items() if values[name] is None}
    return bytes(type(layer)(**values))


# ---------------------------------------------------------------- extension headers


class Extension(Packet):
    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return _class_behind(self, payload)


def _extension(name: str, title: str, *fields: Any) -> type[Extension]:
    """A header that has nothing but fields."""
    members = {"name": title, "__module__": __name__, "fields_desc": list(fields)}
    return type(name, (Extension,), members)


RDETH = _extension(
    "RDETH",
    "RDETH - Reliable Datagram Extended Transport Header",
    XByteField("reserved", 0),
    XBitField("eecnxt", 0, 24),
)


DETH = _extension(
    "DETH",
    "DETH - Datagram Extended Transport Header",
    XIntField("q_key", 0),
    XByteField("reserved", 0),
    _QpField("srcqp", 0, 24),
)


XRCETH = _extension(
    "XRCETH",
    "XRCETH - XRC Extended Transport Header",
    XByteField("reserved", 0),
    XBitField("xrcsrq", 0, 24),
)  # IBA annex A14


RETH = _extension(
    "RETH",
    "RETH - RDMA Extended Transport Header",
    XLongField("va", 0),
    XIntField("r_key", 0),
    IntField("dmalen", 0),
)


AtomicETH = _extension(
    "AtomicETH",
    "AtomicETH - Atomic Extended Transport Header",
    XLongField("va", 0),
    XIntField("r_key", 0),
    XLongField("swapdt", 0),
    XLongField("cmpdt", 0),
)


class _SyndromeField(XByteField):
    def i2repr(self, pkt: Packet | None, x: int) -> str:
        return f"{x:#04x} [{syndrome.text(x)}]"


class AETH(Extension):
    """ACK Extended Transport Header: of acknowledgements, and of most responses."""

    name = "AETH - ACK Extended Transport Header"
    fields_desc: ClassVar[list[Any]] = [
        _SyndromeField("syndrome", 0x1F),
        BitField("msn", 0, 24),
    ]

    def mysummary(self) -> str:
        return f"{syndrome.text(self.syndrome)} msn {self.msn}"


AtomicAckETH = _extension(
    "AtomicAckETH",
    "AtomicAckETH - Atomic Acknowledge Extended Transport Header",
    XLongField("origremdt", 0),
)


class _ImmediateField(XIntField):
    def i2repr(self, pkt: Packet | None, x: int) -> str:
        meant = pkt.interpreted() if isinstance(pkt, ImmDt) else ""
        return f"{super().i2repr(pkt, x)}" + f" [if of uc_immediate: {meant}]" * bool(meant)


class ImmDt(Extension):
    """Immediate Data; slot, offset and user hold for the framing uc_immediate and the SDR SDK."""

    name = "ImmDt - Immediate Data"
    fields_desc: ClassVar[list[Any]] = [_ImmediateField("immdt", 0)]

    @property
    def slot(self) -> int:
        return description.IMMEDIATE.split(self.immdt)["slot"]

    @property
    def offset(self) -> int:
        return description.IMMEDIATE.split(self.immdt)["offset"]

    @property
    def user(self) -> int:
        """Four bits of the user's immediate."""
        return description.IMMEDIATE.split(self.immdt)["user"]

    def interpreted(self) -> str:
        """The three in words; nothing where the opcode is not that of the framing."""
        bth = bth_of(self)
        if bth is None or bth.opcode != UC_WRITE_ONLY_IMMEDIATE:
            return ""
        return f"slot {self.slot} offset {self.offset} user {self.user}"


IETH = _extension("IETH", "IETH - Invalidate Extended Transport Header", XIntField("r_key", 0))


FETH = _extension(
    "FETH",
    "FETH - Flush Extended Transport Header",
    XBitField("reserved", 0, 26),
    BitField("sel", 0, 2),
    BitField("plt", 0, 4),
)  # IBA annex A19


CNPReserved = _extension(
    "CNPReserved", "CNP reserved", XBitField("reserved", 0, 128)
)  # IBA annex A17.9.3


EXTENSIONS: dict[str, type[Extension]] = {
    each.__name__: each
    for each in (
        RDETH, DETH, XRCETH, RETH, AtomicETH, AETH, AtomicAckETH, ImmDt, IETH, FETH, CNPReserved,
    )
}  # fmt: skip


class _LoadField(StrField):
    def i2repr(self, pkt: Packet | None, x: bytes) -> str:
        head = x[:_MOST_SHOWN].hex(" ")
        return f"{len(x)} bytes: {head}{' ...' * (len(x) > _MOST_SHOWN)}"


class Payload(Raw):
    """What is left between the headers and the padding; shown in short."""

    name = "payload"
    match_subclass = True  # `packet[Raw]` finds it
    fields_desc: ClassVar[list[Any]] = [_LoadField("load", b"")]


Recogniser = Callable[[BTH, bytes], type[Packet] | None]
RECOGNISERS: list[Recogniser] = []
"""Each is shown the payloads behind all extension headers, and names a layer or does not."""


def _class_behind(layer: Packet, payload: bytes) -> type[Packet]:
    bth = bth_of(layer)
    kind = bth.kind() if bth else None
    if bth is None or kind is None:
        return Payload
    own = type(layer).__name__
    behind = kind.headers[kind.headers.index(own) + 1 :] if own in kind.headers else kind.headers
    if behind and (own in kind.headers or layer is bth):
        return EXTENSIONS[behind[0]]
    found = (recognise(bth, payload) for recognise in RECOGNISERS)
    return next((each for each in found if each is not None), Payload)


def bth_of(layer: Packet | None) -> BTH | None:
    """The BTH that the layer lies in."""
    while layer is not None and not isinstance(layer, BTH):
        layer = layer.underlayer
    return layer


def _extensions_of(bth: BTH) -> Iterator[Extension]:
    layer = bth.payload
    while isinstance(layer, Extension):
        yield layer
        layer = layer.payload


def _behind_extensions(bth: BTH) -> Packet:
    layer = bth.payload
    while isinstance(layer, Extension):
        layer = layer.payload
    return layer


def cnp(destqp: int) -> BTH:
    return BTH(opcode=CNP, becn=1, destqp=destqp) / CNPReserved()


bind_top_down(UDP, BTH, dport=PORT, sport=SPORT)

# ---------------------------------------------------------------- who dissects UDP port 4791

# Nothing is bound by an import, so a program that uses scapy.contrib.roce goes on as before.
# Building needs no binding: `UDP() / BTH()` names the port by itself.
_GUESS = ({"dport": PORT}, BTH)


def bind() -> None:
    """Dissect UDP port 4791 with these layers, whatever else is bound to it."""
    unbind()
    UDP.payload_guess = [_GUESS, *UDP.payload_guess]  # the first one that fits is taken


def unbind() -> None:
    UDP.payload_guess = [each for each in UDP.payload_guess if each[1] is not BTH]


def is_bound() -> bool:
    return _GUESS in UDP.payload_guess


@contextlib.contextmanager
def bound() -> Iterator[None]:
    """Bound within the block, afterwards as before."""
    before = UDP.payload_guess
    bind()
    try:
        yield
    finally:
        UDP.payload_guess = before


def parse(frame: bytes, link_type: int = 1) -> Packet:
    """The frame as layers, by these ones; `link_type` is a capture's (1: Ethernet)."""
    layer = conf.l2types.num2layer.get(link_type, Raw) if frame else Raw  # not a default packet
    with bound():
        try:
            return layer(frame)
        except Exception:  # whatever scapy's own layers make of a frame cut in their midst
            return Raw(frame)
