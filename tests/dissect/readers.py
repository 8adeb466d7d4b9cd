# SPDX-License-Identifier: GPL-2.0-or-later
"""A frame as three readers tell it, by one set of names: `_native.decode_frame`'s.

Those are Wireshark's for what it knows, and bare ones for `struct lab_hdr`. What a control message
or report says besides is told by scapy's layers and tshark under Wireshark's names (`softroce.*`).
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Padding

from softroce_lab import _native
from softroce_lab.dissect import (
    AETH,
    BTH,
    DETH,
    IETH,
    RETH,
    AtomicAckETH,
    AtomicETH,
    ImmDt,
    LabHeader,
    LabOperation,
    PacketSet,
    SdrClearToSend,
    description,
    parse,
)
from softroce_lab.dissect.description import PREFIX, Field, MissingPackets, Record, Repeated, Text
from softroce_lab.dissect.exhibit import summary
from softroce_lab.dissect.lab import Body, text_of
from softroce_lab.dissect.opcodes import UC_WRITE_ONLY_IMMEDIATE
from softroce_lab.dissect.roce import Extension
from tests.dissect import tshark

IB = "infiniband."
ADDRESSES = ("ip.src", "ip.dst", "ipv6.src", "ipv6.dst")
MACS = ("eth.src", "eth.dst")
IMMEDIATES = (IB + "immdt", IB + "ieth")
HEADER_FIELDS = [part.name for part in description.HEADER.parts]
OPERATION_FIELDS = [part.name for part in description.OPERATION.parts]
OPERATION_PREFIX = f"{PREFIX}.{description.OPERATION.abbreviation}"
NOT_SHOWN = {"version", "reserved"}  # of our headers, by our codec
# What follows from the rest, and our codec does not tell.
CHECKED_APART = ("pad", "icrc", "tver", "padcnt", "resv7")

TSHARK_NAMES = [
    *MACS, *ADDRESSES, "ip.dsfield", "ip.id", "ip.ttl", "ipv6.tclass", "ipv6.flow", "ipv6.hlim",
    "udp.srcport",
    *(IB + "bth." + name for name in ("opcode", "se", "m", "p_key", "destqp", "a", "psn")),
    IB + "reserved", IB + "bth.padcnt", IB + "bth.tver", IB + "bth.reserved7",
    IB + "deth.q_key", IB + "deth.srcqp",
    IB + "reth.va", IB + "reth.r_key", IB + "reth.dmalen",
    IB + "atomiceth.swapdt", IB + "atomiceth.cmpdt",
    IB + "aeth.syndrome", IB + "aeth.msn", IB + "atomicacketh.origremdt",
    *IMMEDIATES, IB + "invariant.crc", "data.data",
    *(f"{PREFIX}.{name}" for name in HEADER_FIELDS),
    *(f"{OPERATION_PREFIX}.{name}" for name in OPERATION_FIELDS),
]  # fmt: skip


def numbers(prefix: str, parts: tuple[Any, ...]) -> list[str]:
    """Wireshark's names of a record's numbers."""
    found = []
    for part in parts:
        if isinstance(part, Field):
            found.append(f"{prefix}.{part.name}")
        elif isinstance(part, Repeated):
            found += numbers(f"{prefix}.{part.name}", part.fields)
    return found


BODIES: list[Record] = [
    *description.CONTROLS.values(),
    description.REPORT_BODY,
    description.PROBE_BODY,
    description.HELLO,
    description.IMMEDIATE,
    description.SDR_CLEAR,
]
SET_NAMES = numbers(f"{PREFIX}.set", description.PACKET_SET.parts)
SET_TEXT = f"{PREFIX}.set.packets"
TEXTS = [
    f"{PREFIX}.{body.abbreviation}.{part.name}"
    for body in BODIES
    for part in body.parts
    if isinstance(part, Text)
]
IMMEDIATE_PARTS = ("slot", "offset", "user")
BODY_NAMES = [
    *(name for body in BODIES for name in numbers(f"{PREFIX}.{body.abbreviation}", body.parts)),
    *SET_NAMES,
    *TEXTS,
    SET_TEXT,
]


# ---------------------------------------------------------------- our codec


def by_codec(frame: bytes, striped: bool) -> dict[str, Any]:
    """All fields, told by the engine's codec."""
    reported = _native.decode_frame(frame, striped)
    assert isinstance(reported, dict), reported
    told = dict(reported)
    if verb := told.pop("verb", 0):
        told |= {"solicited": verb >> 7, "verb": verb & 0x7F}
    return told


# ---------------------------------------------------------------- scapy's layers


def by_scapy(packet: Packet) -> dict[str, Any]:
    """All fields, told by our layers."""
    bth = packet[BTH]
    reported = {
        "eth.src": int(packet[Ether].src.replace(":", ""), 16),
        "eth.dst": int(packet[Ether].dst.replace(":", ""), 16),
        **_by_ip(packet),
        "udp.srcport": packet[UDP].sport,
        **_values(bth, "bth.", skip=("fecn", "becn", "resv6", *CHECKED_APART)),
        IB + "bth.reserved8": bth.fecn << 7 | bth.becn << 6 | bth.resv6,
    }
    for layer, prefix in (
        (DETH, "deth."), (RETH, "reth."), (AtomicETH, "atomiceth."), (AETH, "aeth."),
        (AtomicAckETH, "atomicacketh."), (ImmDt, ""),
    ):  # fmt: skip
        if layer in bth:
            reported |= _values(bth[layer], prefix, skip=("reserved",))
    if IETH in bth:
        reported[IB + "ieth"] = bth[IETH].r_key
    for header, names in ((LabHeader, HEADER_FIELDS), (LabOperation, OPERATION_FIELDS)):
        if header in bth:
            reported |= {
                name: bth[header].getfieldval(name) for name in names if name not in NOT_SHOWN
            }
    return reported | {"payload": payload_of(packet)}


def payload_of(packet: Packet) -> bytes:
    """What lies behind all headers, a control message's body included."""
    layer = packet[BTH].payload
    while isinstance(layer, Extension | LabHeader | LabOperation):
        layer = layer.payload
    return b"" if isinstance(layer, Padding) else bytes(layer)


def _by_ip(packet: Packet) -> dict[str, Any]:
    if IPv6 in packet:
        ip = packet[IPv6]
        rest = {"ipv6.tclass": ip.tc, "ipv6.flow": ip.fl, "ipv6.hlim": ip.hlim}
    else:
        ip = packet[IP]
        rest = {"ip.dsfield": ip.tos, "ip.id": ip.id, "ip.ttl": ip.ttl}
    name = "ipv6" if IPv6 in packet else "ip"
    ends = {f"{name}.src": ip.src, f"{name}.dst": ip.dst}
    return {key: int(ipaddress.ip_address(each)) for key, each in ends.items()} | rest


def _values(layer: Packet, prefix: str, skip: tuple[str, ...]) -> dict[str, Any]:
    names = [each.name for each in layer.fields_desc if each.name not in skip]
    return {IB + prefix + name: layer.getfieldval(name) for name in names}


def body_by_scapy(packet: Packet) -> dict[str, list[Any]]:
    """What a control message, report, immediate or clear to send says, by Wireshark's names."""
    reported: dict[str, list[Any]] = {}
    body = packet[LabHeader].payload if LabHeader in packet else None
    while isinstance(body, Body):
        reported |= _one_body(body)
        body = body.payload  # a report behind a control message
    if packet[BTH].opcode == UC_WRITE_ONLY_IMMEDIATE:
        prefix, layer = f"{PREFIX}.{description.IMMEDIATE.abbreviation}", packet[ImmDt]
        reported |= {f"{prefix}.{name}": [getattr(layer, name)] for name in IMMEDIATE_PARTS}
    if SdrClearToSend in packet:
        reported |= _one_body(packet[SdrClearToSend])
    return reported


def _one_body(body: Body) -> dict[str, list[Any]]:
    reported: dict[str, list[Any]] = {}
    record = next(each for each in BODIES if each.name == body.name)
    prefix = f"{PREFIX}.{record.abbreviation}"
    for part in record.parts:
        value = body.getfieldval(part.name)
        if isinstance(part, Field):
            reported[f"{prefix}.{part.name}"] = [value]
            continue
        if isinstance(part, Text):
            reported[f"{prefix}.{part.name}"] = [text_of(value)]
            continue
        for entry in value:
            within = (
                f"{PREFIX}.set" if isinstance(part, MissingPackets) else f"{prefix}.{part.name}"
            )
            for field in entry.fields_desc:
                if not isinstance(entry, PacketSet) or field.name != "bits":
                    named = reported.setdefault(f"{within}.{field.name}", [])
                    named.append(entry.getfieldval(field.name))
            if isinstance(entry, PacketSet):
                reported[SET_TEXT] = [entry.missing()]
    return reported


# ---------------------------------------------------------------- tshark


def by_tshark(seen: dict[str, list[str]]) -> dict[str, Any]:
    """All fields, told by tshark; a name that it does not show is not there."""
    reported: dict[str, Any] = {}
    for name in TSHARK_NAMES:
        if name in seen:
            reported[name] = _number(name, seen[name][0])
    reported[IB + "bth.reserved8"] = int(seen[IB + "reserved"][0], 16)
    for name in ("padcnt", "tver", "reserved7"):
        reported.pop(f"{IB}bth.{name}")
    if IB + "atomiceth.swapdt" in reported:  # Wireshark has but one pair of names for these
        for name in ("va", "r_key"):
            reported[f"{IB}atomiceth.{name}"] = reported.pop(f"{IB}reth.{name}")
    for prefix, names in ((PREFIX, HEADER_FIELDS), (OPERATION_PREFIX, OPERATION_FIELDS)):
        for name in names:
            value = reported.pop(f"{prefix}.{name}", None)
            if value is not None and name not in NOT_SHOWN:
                reported[name] = value
    for name in (IB + "reserved", IB + "invariant.crc", "data.data"):
        reported.pop(name, None)
    return reported


def _number(name: str, text: str) -> Any:
    if name in ADDRESSES:
        return int(ipaddress.ip_address(text))
    if name in MACS:
        return int(text.replace(":", ""), 16)
    if name in (*IMMEDIATES, IB + "reserved", "data.data"):
        return int(text.replace(":", ""), 16)
    return int(text, 0)


def body_by_tshark(seen: dict[str, list[str]]) -> dict[str, list[Any]]:
    """What a control message or report says, told by tshark with our dissector."""
    return {
        name: values if name in (SET_TEXT, *TEXTS) else [int(each, 0) for each in values]
        for name, values in seen.items()
        if name in BODY_NAMES
    }


# ---------------------------------------------------------------- all of them


def check_all(frames: list[bytes], home: Path) -> list[Packet]:
    """Every reader tells the same of every frame; ICRC and rebuilding, too. Returns the packets."""
    capture = tshark.write_pcap(home / "frames.pcap", frames)
    seen = tshark.fields(home, capture, [*TSHARK_NAMES, *BODY_NAMES])
    assert len(seen) == len(frames)
    packets = [parse(frame) for frame in frames]
    for number, (frame, packet, shown) in enumerate(zip(frames, packets, seen, strict=True), 1):
        place = f"packet {number}, {summary(frame)}"
        reported = by_codec(frame, LabHeader in packet)
        same(by_scapy(packet), reported, place)
        reported.pop("payload")
        same(by_tshark(shown), reported, place)
        same(body_by_scapy(packet), body_by_tshark(shown), place)
        check_icrc(frame, packet, shown)
        assert bytes(packet) == frame, place
    return packets


def same(one: dict[str, Any], other: dict[str, Any], place: str) -> None:
    """Two readers tell the same."""
    names = one.keys() | other.keys()
    differing = {
        name: (one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)
    }
    assert not differing, f"{place}: {differing}"


def check_icrc(frame: bytes, packet: Packet, shown: dict[str, list[str]]) -> None:
    """Right by our layers and our codec, and the one that tshark shows, if it shows one."""
    bth = packet[BTH]
    assert bth.icrc_is_right() is True
    assert bth.icrc.to_bytes(4, "big") == _native.icrc(frame).to_bytes(4, "little") == frame[-4:]
    for crc in shown.get(IB + "invariant.crc", []):  # not shown behind acknowledgements, for one
        assert int(crc, 0) == bth.icrc
