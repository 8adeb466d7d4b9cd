# SPDX-License-Identifier: GPL-2.0-or-later
"""A capture, under way or in a file, as lines of text: what `lab capture` prints without -w.

The native reader parses; of frames that are not RoCE its rows say nothing, so their bytes are
kept until their line is made.
"""

from __future__ import annotations

import ipaddress
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from softroce_lab import _native
from softroce_lab.errors import UserError
from softroce_lab.faults.opcodes import opcode_name
from softroce_lab.structs import CONSTANTS, enumerators
from softroce_lab.telemetry import capture_file
from softroce_lab.telemetry.drops import PACKET_KINDS
from softroce_lab.telemetry.packets import PACKET, Has, Kind

_ETHERNET_BYTES = 14
_IPV4, _IPV6, _TCP, _UDP = 0x0800, 0x86DD, 6, 17
_PROTOCOLS = {1: "ICMP", _TCP: "TCP", _UDP: "UDP", 58: "ICMPv6"}
_BTH_ENDS = {False: 54, True: 74}  # in an Ethernet frame of IPv4, of IPv6
_UC_WRITE_ONLY_IMMEDIATE = 0x2B
_VERBS = {
    number: name.upper().replace("_", " ") for name, number in enumerators("lab_verb").items()
}
_SOLICITED: int = CONSTANTS["LAB_VERB_SOLICITED"]
_RESULT = enumerators("lab_operation_class")["result"]
_SYNDROMES = {0: "ACK", 1: "RNR NAK", 3: "NAK"}


class Lines:
    """Takes the capture in pieces of any length."""

    def __init__(self) -> None:
        self._reader = _native.CaptureReader()
        self._kept = b""  # of the file, from
        self._begin = 0

    def of(self, piece: bytes) -> Iterator[str]:
        """The lines of the packets that are whole with this piece."""
        self._kept += piece
        self._reader.feed(piece)
        rows = self._reader.take_packets().view(PACKET).reshape(-1)
        if not len(rows):
            return
        names = [name or f"interface {i}" for i, (name, *_) in enumerate(self._reader.interfaces())]
        comments = self._reader.comments()
        for row in rows:
            begin = int(row["offset"]) - self._begin
            frame = self._kept[begin : begin + int(row["captured"])]
            comment = f"  [{comments[row['comment']]}]" if row["comment"] >= 0 else ""
            seen = f"{_stamp(int(row['time_ns']))} {names[row['interface']]}"
            yield f"{seen} {_line(row, frame)}{comment}"
        end = begin + len(frame)
        self._kept = self._kept[end:]
        self._begin += end

    @property
    def stopped(self) -> bool:
        """Whether no further line can come: what follows cannot be read."""
        return bool(self._reader.stopped)

    def end(self) -> tuple[str | None, list[str]]:
        """No piece follows: why it was none, or None; and what is wrong with it, in words."""
        self._reader.finish()
        return self._reader.refusal, [what for what, *_ in self._reader.notes()]


def of_file(path: Path, notes: list[str]) -> Iterator[str]:
    """The same lines of a file; `notes`: takes what is wrong with it. UserError if it is none."""
    lines = Lines()
    for piece in capture_file.pieces(path):
        if lines.stopped:
            break
        yield from lines.of(bytes(piece))
    refusal, found = lines.end()
    if refusal is not None:
        raise UserError(refusal, file=str(path), hint=capture_file.CONVERT)
    notes += found


def _stamp(time_ns: int) -> str:
    seconds, ns = divmod(time_ns, 10**9)
    return f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{ns:09}"


def _line(row: np.void, frame: bytes) -> str:
    try:
        words = _other(frame) if row["kind"] == Kind.OTHER else _roce(row)
    except (struct.error, IndexError, ValueError):
        words = "cut off"
    return f"{words}, {row['length']} bytes"


def _roce(row: np.void) -> str:
    ends = f"{_address(row['source'])} > {_address(row['destination'])}: "
    has = Has(int(row["has"]))
    if row["captured"] < _BTH_ENDS[Has.IPV6 in has]:
        return f"{ends}UDP {row['source_port']} > 4791"
    words = f"{opcode_name(int(row['opcode']))} sport {row['source_port']}"
    words += f" qp 0x{row['destination_qp']:x} psn {row['psn']}"
    if Has.AETH in has:
        kind = _SYNDROMES.get(row["syndrome"] >> 5 & 3, "reserved")
        words += f" {kind} {row['syndrome'] & 0x1F} msn {row['msn']}"
    if Has.IMMEDIATE in has:
        words += _immediate(int(row["opcode"]), int(row["immediate"]))
    if Has.LAB in has:
        words += _lab(row, has)
    if row["kind"] == Kind.MALFORMED:
        words += f" malformed: {_native.CAPTURE_REFUSALS[row['refusal']]}"
    return ends + words


def _immediate(opcode: int, value: int) -> str:
    """With its parts if it may be that of the framing uc_immediate."""
    words = f" immdt 0x{value:08x}"
    if opcode != _UC_WRITE_ONLY_IMMEDIATE:
        return words
    parts = f"slot {value >> 22} offset {value >> 4 & (1 << 18) - 1} user {value & 15}"
    return f"{words} (if of uc_immediate: {parts})"


def _lab(row: np.void, has: Has) -> str:
    """Of a striped message."""
    path, message, kind = row["lab_path"], row["lab_message"], PACKET_KINDS[row["lab_kind"]]
    trimmed = " trimmed" if Has.TRIMMED in has else ""
    trimmed += " at the last hop" if Has.TRIMMED_LAST in has else ""
    if kind not in ("data", "parity"):
        return f" {kind} {message} path {path}{trimmed}"
    again = f" attempt {row['lab_attempt']}" if row["lab_attempt"] else ""
    again += trimmed
    if Has.OPERATION in has:
        return f" {_operation(row, kind)} path {path}{again}"
    step = row["lab_operation"], row["lab_step"]
    name = f"{step[0]}.{step[1]}.{message}" if any(step) else f"{message}"
    return f" {kind} {name} packet {row['lab_index']} of {row['lab_count']} path {path}{again}"


def _operation(row: np.void, kind: str) -> str:
    """Of a message of a reliable connection's operation."""
    parity = "parity of " if kind == "parity" else ""
    operation, verb = int(row["lab_operation"]), int(row["lab_verb"])
    result = "result of " if operation >> 8 == _RESULT else ""
    qp = (operation & 0xFF) << 16 | int(row["lab_step"])
    name = f"{_VERBS[verb & ~_SOLICITED]} {row['lab_message']} of QP 0x{qp:x}"
    return f"{parity}{result}{name} packet {row['lab_index']}/{row['lab_count']}"


def _address(gid: bytes | np.ndarray) -> str:
    address = ipaddress.ip_address(bytes(gid))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _other(frame: bytes) -> str:
    """Of an Ethernet frame without RoCE. struct.error, IndexError, ValueError: it is cut off."""
    (ethertype,) = struct.unpack_from("!H", frame, 12)
    at = _ETHERNET_BYTES
    if ethertype == _IPV4:
        protocol, ends = frame[at + 9], (frame[at + 12 : at + 16], frame[at + 16 : at + 20])
        at += 4 * (frame[at] & 0xF)
    elif ethertype == _IPV6:
        protocol, ends = frame[at + 6], (frame[at + 8 : at + 24], frame[at + 24 : at + 40])
        at += 40
    else:
        return f"EtherType 0x{ethertype:04x}"
    name = _PROTOCOLS.get(protocol, f"protocol {protocol}")
    if protocol in (_TCP, _UDP):
        source, destination = struct.unpack_from("!HH", frame, at)
        name += f" {source} > {destination}"
    return f"{_address(ends[0])} > {_address(ends[1])}: {name}"
