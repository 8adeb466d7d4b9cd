# SPDX-License-Identifier: GPL-2.0-or-later
"""Comments on packets of a pcapng capture that is complete: what hosts did at these moments.

A note goes to the first packet of its host from its time on, or to the last one before. The file is
written anew beside itself and takes its place at once; frames, their order and times stay.
"""

from __future__ import annotations

import collections
import dataclasses
import shutil
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from softroce_lab.errors import RunError
from softroce_lab.telemetry import capture_file
from softroce_lab.telemetry.packets import Packets
from softroce_lab.telemetry.rundir import give_to_user

_ENHANCED = 6  # block type of an Enhanced Packet Block (draft-ietf-opsawg-pcapng, 4.3)
_COMMENT = 1  # opt_comment
_HEAD = struct.Struct("=7I")  # type, length, interface, time (2), captured, length on the wire
_OPTION = struct.Struct("=HH")
_END = _OPTION.pack(0, 0)  # opt_endofopt
_MOST_BYTES = 1000  # of a comment
_PIECE_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """Text for a packet from or to one of these addresses: GIDs of 16 bytes."""

    time_ns: int  # as the capture counts it
    addresses: frozenset[bytes]
    text: str


def annotate(path: Path, notes: Sequence[Note]) -> int:
    """Write the notes into the file; how many found a packet. RunError if it cannot be written."""
    if not notes:
        return 0
    packets = capture_file.read(path).packets
    packets = packets[np.argsort(packets["time_ns"], kind="stable")]
    times, offsets = packets["time_ns"].astype(np.int64), packets["offset"]
    of_hosts = {
        addresses: (times[theirs], offsets[theirs])
        for addresses in {note.addresses for note in notes}
        if (theirs := _is_of(addresses, packets)).any()
    }
    chosen: dict[int, list[str]] = collections.defaultdict(list)
    for note in notes:
        if note.addresses in of_hosts:
            when, where = of_hosts[note.addresses]
            at = min(int(np.searchsorted(when, note.time_ns)), len(when) - 1)
            chosen[int(where[at])].append(note.text)
    if chosen:
        _rewrite(path, dict(sorted(chosen.items())))
    return sum(map(len, chosen.values()))


def _is_of(addresses: frozenset[bytes], packets: Packets) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(packets), np.bool_)
    for address in addresses:
        wanted = np.frombuffer(address, np.uint8)
        for end in ("source", "destination"):
            found |= (packets[end] == wanted).all(axis=1)
    return found


def _rewrite(path: Path, texts: Mapping[int, Sequence[str]]) -> None:
    """`texts` by the place of their packet's first byte, in the order of the file."""
    fresh = path.with_name(f".{path.name}.tmp")
    try:
        with path.open("rb") as old, fresh.open("wb") as new:
            for offset, lines in texts.items():
                _copy(old, new, offset - _HEAD.size - old.tell())
                new.write(_with_comments(_block(old), lines))
            shutil.copyfileobj(old, new)
        give_to_user(fresh)
        fresh.replace(path)
    except OSError as error:
        raise RunError(f"cannot write comments into {path}: {error.strerror or error}") from error
    finally:
        fresh.unlink(missing_ok=True)


def _copy(old: IO[bytes], new: IO[bytes], count: int) -> None:
    while count > 0:
        piece = old.read(min(count, _PIECE_BYTES))
        if not piece:
            raise OSError("it has become shorter")
        new.write(piece)
        count -= len(piece)


def _block(old: IO[bytes]) -> bytes:
    """The Enhanced Packet Block that begins here."""
    head = old.read(_HEAD.size)
    kind, length, *_ = _HEAD.unpack(head)
    if kind != _ENHANCED:
        raise OSError("it has other blocks than the lab writes")
    return head + old.read(length - _HEAD.size)


def _with_comments(block: bytes, lines: Sequence[str]) -> bytes:
    kind, length, interface, high, low, captured, wire = _HEAD.unpack(block[: _HEAD.size])
    end = _HEAD.size + -(-captured // 4) * 4
    options = block[end:-4]
    if options.endswith(_END):
        options = options[: -len(_END)]
    for line in lines:
        text = line.encode()[:_MOST_BYTES]
        options += _OPTION.pack(_COMMENT, len(text)) + text + bytes(-len(text) % 4)
    length = end + len(options) + len(_END) + 4
    head = _HEAD.pack(kind, length, interface, high, low, captured, wire)
    return head + block[_HEAD.size : end] + options + _END + struct.pack("=I", length)
