# SPDX-License-Identifier: GPL-2.0-or-later
"""A captured packet as text: one line, or every field. Never an exception, whatever the bytes.

Importing this imports scapy, which takes half a second: do so where a packet is to be shown.
"""

from __future__ import annotations

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6

from softroce_lab.dissect.lab import Body, LabHeader, SdrClearToSend
from softroce_lab.dissect.mad import MAD, CmMessage
from softroce_lab.dissect.roce import AETH, BTH, NOT_CAPTURED, RETH, ImmDt, Payload, parse

ETHERNET = 1


def show(frame: bytes, link_type: int = ETHERNET) -> str:
    """Every field of every header, as the specification names them."""
    return str(parse(frame, link_type).show(dump=True)).rstrip("\n")


def summary(frame: bytes, link_type: int = ETHERNET) -> str:
    """The packet in one line: from, to, and what it is."""
    packet = parse(frame, link_type)
    bth = packet.getlayer(BTH)
    if not isinstance(bth, BTH):
        return str(packet.summary())
    ip = packet.getlayer(IP) or packet.getlayer(IPv6)
    ends = f"{ip.src}:{packet[UDP].sport} > {ip.dst}: " if ip else ""
    parts = filter(None, (bth.mysummary(), _headers(bth), _body(bth), _icrc(bth)))
    return ends + ", ".join(parts)


def _headers(bth: BTH) -> str:
    if AETH in bth:
        return str(bth[AETH].mysummary())
    if RETH in bth:
        words = f"va {bth[RETH].va:#x} r_key {bth[RETH].r_key:#x} dmalen {bth[RETH].dmalen}"
        return words + (_immediate(bth[ImmDt]) if ImmDt in bth else "")
    return ""


def _immediate(layer: ImmDt) -> str:
    meant = layer.interpreted()
    return f" immdt {layer.immdt:#x}" + f" (if of uc_immediate: {meant})" * bool(meant)


def _body(bth: BTH) -> str:
    if MAD in bth:
        message = bth[MAD].payload
        return str((message if isinstance(message, CmMessage) else bth[MAD]).mysummary())
    if SdrClearToSend in bth:
        return f"16 bytes (if of the SDR SDK: {bth[SdrClearToSend].mysummary()})"
    header = bth.getlayer(LabHeader)
    if header is None:
        return f"{len(bth[Payload].load)} bytes" if Payload in bth else ""
    body = header.payload
    return ", ".join([header.mysummary(), *([body.mysummary()] if isinstance(body, Body) else [])])


def _icrc(bth: BTH) -> str:
    if bth.icrc == NOT_CAPTURED:
        return "snapped"
    return "wrong ICRC" if bth.icrc_is_right() is False else ""
