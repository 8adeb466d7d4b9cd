# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads captures: pcap and pcapng files, ours and anybody's, as rows of a table.

The native reader (native/capture/) parses; what is wrong with a file, and what was left out of it,
becomes notes. Rows take 232 bytes a packet; the packets' own bytes stay in the file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from softroce_lab import _native
from softroce_lab.errors import UserError
from softroce_lab.inputs.validation import listed
from softroce_lab.telemetry.packets import PACKET, Kind, Packets

_PIECE_BYTES = 1 << 20
CONVERT = "give a pcap or pcapng file; Wireshark's editcap -F pcapng makes one of others"
_COMPRESSED = {b"\x1f\x8b": "gunzip", b"\x28\xb5\x2f\xfd": "unzstd", b"\x04\x22\x4d\x18": "unlz4"}


@dataclasses.dataclass(frozen=True, slots=True)
class Interface:
    """Where packets were captured: one a directed link in the lab's files, one a pcap file."""

    name: str | None
    link_type: int  # 1: Ethernet; tcpdump.org/linktypes.html
    snap_length: int  # bytes; 0: unlimited
    received: int | None  # of its statistics: packets that came by,
    dropped: int | None  # and those that were not captured for lack of room


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """Something about the capture that is not right, or was left out."""

    what: str
    count: int
    first: int  # number of the first frame concerned, 0: the file


@dataclasses.dataclass(frozen=True)
class Capture:
    """A file's packets, and notes on them."""

    packets: Packets
    interfaces: tuple[Interface, ...]
    comments: tuple[str, ...]
    refusals: tuple[str, ...]
    notes: tuple[Note, ...]
    path: Path

    def frame(self, number: int) -> bytes:
        """Captured bytes of a frame, read from the file again.

        KeyError if there is no such row; UserError if the file is not there as it was.
        """
        row = self._row(number)
        captured = int(row["captured"])
        with _reading(self.path) as file:
            frame = os.pread(file, captured, int(row["offset"]))
        if len(frame) != captured:
            raise UserError("has become shorter since it was read", file=str(self.path))
        return frame

    def payload(self, number: int) -> bytes:
        """What a packet carries behind all headers, struct lab_hdr too, as far as it was captured.

        Without padding and ICRC; nothing of a frame that is not a RoCEv2 packet.
        """
        row = self._row(number)
        if row["kind"] != Kind.ROCE:
            return b""
        begin = int(row["payload_at"])
        return self.frame(number)[begin : begin + int(row["payload_bytes"])]

    def _row(self, number: int) -> np.void:
        index = number - 1  # where every frame before it has a row; a search copies the column
        if not (0 <= index < len(self.packets) and self.packets[index]["number"] == number):
            index = int(np.searchsorted(self.packets["number"], number))
        if index == len(self.packets) or self.packets[index]["number"] != number:
            raise KeyError(number)
        row: np.void = self.packets[index]
        return row


def read(path: Path) -> Capture:
    """Read a capture; UserError for a file that cannot be read or is none.

    A file that is broken further on gives what can be read of it, and notes.
    """
    reader = _native.CaptureReader()
    for piece in pieces(path):
        if reader.stopped:
            break
        reader.feed(piece)
    reader.finish()
    if reader.refusal is not None:
        raise UserError(reader.refusal, file=str(path), hint=CONVERT)
    packets = reader.take_packets().view(PACKET).reshape(-1)
    return Capture(
        packets=packets,
        interfaces=tuple(Interface(*each) for each in reader.interfaces()),
        comments=tuple(reader.comments()),
        refusals=tuple(_native.CAPTURE_REFUSALS),
        notes=tuple(_note(*each) for each in reader.notes()),
        path=path,
    )


def pieces(path: Path) -> Iterator[memoryview]:
    """The bytes of a capture, part by part, each only until the next.

    UserError for what is not read: a compressed one.
    """
    piece = bytearray(_PIECE_BYTES)
    with _reading(path) as file:
        first = True
        while got := os.readv(file, [piece]):
            if first:
                _refuse_compressed(bytes(piece[:4]), path)
            first = False
            yield memoryview(piece)[:got]


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[int]:
    """A descriptor of the file; UserError for what goes wrong.

    A pipe is refused: frames that prove something are read again later.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UserError("is a directory", file=str(path), hint=_inside(path))
        if not stat.S_ISREG(mode):
            raise UserError("is no regular file", file=str(path), hint="save the capture to a file")
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield file
        finally:
            os.close(file)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", file=str(path)) from None


def _inside(path: Path) -> str:
    """The captures of a directory, for a hint."""
    found = [str(each) for each in sorted(path.glob("*.pcap*")) if each.is_file()]
    if not found:
        return "name a capture; there is none in it"
    return f"name a capture of it: {listed(found, 4)}"


def _refuse_compressed(head: bytes, path: Path) -> None:
    for magic, tool in _COMPRESSED.items():
        if head.startswith(magic):
            raise UserError("is compressed", file=str(path), hint=f"run {tool} on it first")


def _note(what: str, count: int, first: int, offset: int | None) -> Note:
    place = "" if offset is None else f" (at byte {offset:,})"
    return Note(what + place, count, first)
